package core

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// fillValue sets every field of a value, so that a field a record forgets is noticed when it is added.
func fillValue(t *testing.T, v reflect.Value, depth int) {
	t.Helper()
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_900_000_000, 5).UTC()))
		return
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{"a": 1.5, "b": []any{"x", nil, true}}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(t, v.Field(i), depth)
		}
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillValue(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fillValue(t, v.Index(i), depth-1)
			}
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(map[string]any{"nested": []any{1.0, "two"}}))
	case reflect.String:
		v.SetString("text")
	case reflect.Int:
		v.SetInt(3)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(2)
	default:
		t.Fatalf("a checkpoint has a field of kind %v: teach this test and the record", v.Kind())
	}
}

func TestCheckpointsComeBackWhole(t *testing.T) {
	var c workflow.Checkpoint
	fillValue(t, reflect.ValueOf(&c).Elem(), 4)
	var r storev1.Checkpoint
	if err := proto.Unmarshal(marshal(toCheckpoint(&c)), &r); err != nil {
		t.Fatal(err)
	}
	got := fromCheckpoint(&r)
	if again := fromCheckpoint(toCheckpoint(got)); !reflect.DeepEqual(again, got) || !reflect.DeepEqual(*got, c) {
		t.Errorf("came back as\n%+v, want\n%+v", *got, c)
	}
}
