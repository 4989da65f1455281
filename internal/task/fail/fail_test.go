package fail

import (
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

func TestFail(t *testing.T) {
	for definition, want := range map[string]struct {
		class, message string
		permanent      bool
	}{
		`{"message": "no ${params.name}"}`:           {"fail", "no Ada", true},
		`{"message": "later", "retryable": true}`:    {"fail", "later", false},
		`{"message": "${params.x}"}`:                 {"expression", "message: params.x: ", true},
		`{"message": "${1 / 0}", "retryable": true}`: {"expression", "message: 1 / 0: ", true},
	} {
		_, err := kindtest.Task(t, Kind, kindtest.Config(), `{"fail": `+definition+`}`).Run(t.Context(), kindtest.NewCall().Invocation)
		failure := kindtest.Failure(t, err)
		if failure.Class != want.class || failure.Permanent != want.permanent || !strings.HasPrefix(err.Error(), want.message) {
			t.Errorf("%s: got %+v, want %+v", definition, failure, want)
		}
	}
}

func TestInvalid(t *testing.T) {
	_, err := kindtest.Compile(t, Kind, kindtest.Config(), `{"fail": {"message": "${nope}"}}`)
	if err == nil || !strings.HasPrefix(err.Error(), "fail.message: column 3: ") {
		t.Errorf("got %v", err)
	}
}
