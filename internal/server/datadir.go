package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/service"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
	"google.golang.org/protobuf/encoding/protojson"
)

// What is in a data directory.
const (
	storeDir  = "store"
	outputDir = "output"
)

// inspection is what Inspect writes before the flows.
type inspection struct {
	DataDir  string            `json:"data_dir"`
	Instance string            `json:"instance"`
	Schema   uint64            `json:"schema"`
	Revision uint64            `json:"revision"`
	Starts   uint64            `json:"starts"` // how often a daemon has used it
	Counts   core.StoredCounts `json:"counts"`
}

// Inspect writes what is in a data directory that no daemon uses, as JSON: all flows, or with flowID one flow with its definition, its
// kept runs and their events. It changes nothing.
func Inspect(ctx context.Context, dir, flowID string, w io.Writer) error {
	disk, err := openToRead(filepath.Join(dir, storeDir))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	err = inspect(ctx, disk, dir, flowID, out)
	return errors.Join(err, out.Flush(), disk.Close())
}

func openToRead(dir string) (*pebble.Store, error) {
	disk, err := pebble.Open(pebble.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return nil, of{ErrStore, err}
	}
	return disk, nil
}

func inspect(ctx context.Context, disk *pebble.Store, dir, flowID string, out io.Writer) error {
	if flowID != "" {
		return inspectFlow(ctx, disk, flowID, out)
	}
	counts, err := core.CountStored(ctx, disk)
	if err != nil {
		return of{ErrStore, err}
	}
	info := disk.Info()
	head, err := json.MarshalIndent(inspection{dir, info.Instance, info.Schema, uint64(info.Revision), info.Epoch, counts}, "", "  ")
	if err != nil {
		return err
	}
	// The flows follow one by one: there may be a million of them.
	if _, err := fmt.Fprintf(out, "%s,\n  \"flows\": [", head[:len(head)-len("\n}")]); err != nil {
		return err
	}
	separator := "\n    "
	err = core.EachStored(ctx, disk, func(f *core.StoredFlow) error {
		line, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s%s", separator, line)
		separator = ",\n    "
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "\n  ]\n}")
	return err
}

func inspectFlow(ctx context.Context, disk *pebble.Store, flowID string, out io.Writer) error {
	f, runs, err := core.StoredRuns(ctx, disk, flowID)
	switch {
	case err != nil:
		return of{ErrStore, err}
	case f == nil:
		return fmt.Errorf("there is no flow %q in the data directory; without --flow all are shown", flowID)
	}
	shown := struct {
		*core.StoredFlow
		Definition json.RawMessage   `json:"definition,omitempty"`
		Runs       []json.RawMessage `json:"runs"`
	}{f, nil, []json.RawMessage{}}
	options := protojson.MarshalOptions{UseProtoNames: true}
	if f.Source != nil {
		written, err := definition.Source(&core.Definition{ID: f.ID, Source: f.Source})
		if err != nil {
			return of{ErrStore, err}
		}
		if shown.Definition, err = options.Marshal(written); err != nil {
			return err
		}
	}
	for _, run := range runs {
		text, err := options.Marshal(service.RunMessage(run))
		if err != nil {
			return err
		}
		shown.Runs = append(shown.Runs, text)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(shown)
}

// Restore makes a data directory of a backup that schedctl wrote. The directory must be empty or not there; it is a data directory only
// when all of the backup is there and has been read once. What went wrong leaves it as it was.
func Restore(ctx context.Context, file, dir string) (counts core.StoredCounts, err error) {
	archive, err := os.Open(file)
	if err != nil {
		return counts, of{ErrOptions, err}
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return counts, of{ErrStore, err}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return counts, of{ErrStore, err}
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			return counts, of{ErrStore, fmt.Errorf("%s is not empty (it holds %s): restore into an empty directory, or one that is not there", dir, e.Name())}
		}
	}
	partial, err := os.MkdirTemp(dir, storeDir+".partial-")
	if err != nil {
		return counts, of{ErrStore, err}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if err := pebble.Restore(archive, pebble.Options{Dir: partial}); err != nil {
		return counts, of{ErrStore, fmt.Errorf("%s: %w", file, err)}
	}
	if counts, err = countIn(ctx, partial); err != nil {
		return counts, err
	}
	if err := os.Rename(partial, filepath.Join(dir, storeDir)); err != nil {
		return counts, of{ErrStore, err}
	}
	return counts, syncDir(dir)
}

func countIn(ctx context.Context, dir string) (core.StoredCounts, error) {
	disk, err := openToRead(dir)
	if err != nil {
		return core.StoredCounts{}, err
	}
	counts, err := core.CountStored(ctx, disk)
	if err = errors.Join(err, disk.Close()); err != nil {
		err = of{ErrStore, err}
	}
	return counts, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
