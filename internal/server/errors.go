package server

import "errors"

// Why a server does not start, or ends badly: test with errors.Is. Each has an exit code; see ExitCode.
var (
	ErrOptions = errors.New("the options are wrong")
	ErrFlows   = errors.New("the flows files are wrong")
	ErrStore   = errors.New("the data directory cannot be used")
	ErrListen  = errors.New("an address cannot be listened on")
)

// of is err with a kind that its text does not repeat.
type of struct {
	kind error
	err  error
}

func (e of) Error() string   { return e.err.Error() }
func (e of) Unwrap() []error { return []error{e.kind, e.err} }

// Exit codes of the daemon.
const (
	ExitOK      = 0
	ExitFailure = 1 // anything else
	ExitUsage   = 2
	ExitFlows   = 3
	ExitStore   = 4
	ExitListen  = 5
)

// ExitCode is the exit code that tells of err.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrOptions):
		return ExitUsage
	case errors.Is(err, ErrFlows):
		return ExitFlows
	case errors.Is(err, ErrStore):
		return ExitStore
	case errors.Is(err, ErrListen):
		return ExitListen
	}
	return ExitFailure
}
