package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// Records is a Tracker that keeps a file per running group in a folder of the machine the groups run on. It survives the
// daemon; it need not survive the machine, so nothing is synced.
type Records struct {
	dir string
	log *slog.Logger
}

// OpenRecords takes over a folder, which is created if it is missing: it kills the groups that a daemon before left behind,
// and tells which those were. No other daemon may be using the folder.
func OpenRecords(dir string, log *slog.Logger) (r *Records, killed []Group, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("records of running commands: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("records of running commands: %w", err)
	}
	var failures []error
	for _, file := range files {
		name := filepath.Join(dir, file.Name())
		var g Group
		// A record that cannot be read is one whose write the crash cut short.
		if text, err := os.ReadFile(name); err == nil && json.Unmarshal(text, &g) == nil {
			switch found, err := KillGroup(g); {
			case err != nil:
				failures = append(failures, err)
				continue // and keep the record: it may go better next time
			case found:
				killed = append(killed, g)
			}
		}
		if err := os.Remove(name); err != nil {
			failures = append(failures, fmt.Errorf("records of running commands: %w", err))
		}
	}
	return &Records{dir, log}, killed, errors.Join(failures...)
}

// Started writes a group's record.
func (r *Records) Started(g Group) {
	text, err := json.Marshal(g)
	if err == nil {
		err = os.WriteFile(r.file(g), text, 0o600)
	}
	if err != nil {
		r.log.Warn("a command was not recorded: should the daemon crash, its children may stay", "run", g.RunID, "error", err)
	}
}

// Ended removes a group's record.
func (r *Records) Ended(g Group) {
	if err := os.Remove(r.file(g)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the record of a command that ended was not removed", "run", g.RunID, "error", err)
	}
}

func (r *Records) file(g Group) string { return filepath.Join(r.dir, strconv.Itoa(g.ID)) }
