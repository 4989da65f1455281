package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// ownFunctions are those that are not CEL's.
var ownFunctions = []cel.EnvOption{
	// json.encode(dyn) -> string
	cel.Function("json.encode", cel.Overload("json_encode", []*cel.Type{cel.DynType}, cel.StringType,
		cel.UnaryBinding(encodeJSON))),
	// json.decode(string) -> dyn
	cel.Function("json.decode", cel.Overload("json_decode", []*cel.Type{cel.StringType}, cel.DynType,
		cel.UnaryBinding(decodeJSON))),
	// timestamp.strftime(format) and timestamp.strftime(format, zone) -> string
	cel.Function("strftime",
		cel.MemberOverload("timestamp_strftime", []*cel.Type{cel.TimestampType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(func(t, format ref.Val) ref.Val { return formatTime(t, format, types.String("UTC")) })),
		cel.MemberOverload("timestamp_strftime_zone", []*cel.Type{cel.TimestampType, cel.StringType, cel.StringType}, cel.StringType,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val { return formatTime(args[0], args[1], args[2]) }))),
}

// envFunction is env(string) -> string. That its argument is a literal is checked by inspect: who triggers a flow must not
// be able to choose which variable is read.
var envFunction = cel.Function("env", cel.Overload("env", []*cel.Type{cel.StringType}, cel.StringType,
	cel.UnaryBinding(readEnv)))

var errNotSet = errors.New("is not set in the daemon's environment")

func readEnv(name ref.Val) ref.Val {
	value, set := os.LookupEnv(string(name.(types.String)))
	if !set {
		return types.WrapErr(fmt.Errorf("%s %w", name.(types.String), errNotSet))
	}
	return types.String(value)
}

func encodeJSON(v ref.Val) ref.Val {
	value, err := jsonLike(v)
	if err != nil {
		return types.WrapErr(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(text)
}

func decodeJSON(text ref.Val) ref.Val {
	var value any
	if err := json.Unmarshal([]byte(text.(types.String)), &value); err != nil {
		return types.NewErr("this is not JSON: %v", err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

func formatTime(t, format, zone ref.Val) ref.Val {
	location, err := time.LoadLocation(string(zone.(types.String)))
	if err != nil || zone == types.String("Local") {
		return types.NewErr("there is no time zone %q", string(zone.(types.String)))
	}
	text, err := strftime(t.(types.Timestamp).In(location), string(format.(types.String)))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(text)
}
