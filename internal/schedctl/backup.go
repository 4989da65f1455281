package schedctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) backupCommand() *cobra.Command {
	var force bool
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a consistent copy of the daemon's data to a tar file, while it runs",
		Long: `Backup writes a consistent copy of the daemon's data directory to a tar file, while the daemon
runs. The file appears once it is complete. - is standard output.
To use it: schedulerd restore.`,
		Example: "  schedctl backup schedulerd-$(date +%F).tar",
		Args:    cobra.ExactArgs(1),
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			ctx, cancel := a.whole(ctx)
			defer cancel()
			if args[0] == "-" {
				if _, _, terminal := a.env.Window(); terminal {
					return usagef("an archive is nothing for a terminal: name a file, or redirect the output")
				}
				_, err := copyBackup(ctx, client, a.env.Out)
				return err
			}
			if _, err := os.Stat(args[0]); err == nil && !force {
				return usagef("%s exists; --force overwrites it", args[0])
			}
			size, err := writeBackup(ctx, client, args[0])
			if err != nil {
				return err
			}
			if a.printer.human() {
				return a.printer.lines([]string{fmt.Sprintf("wrote %s, %s", args[0], byteSize(size))})
			}
			return nil
		}),
	}
	command.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return command
}

// writeBackup leaves either the whole archive in file, or what was there before.
func writeBackup(ctx context.Context, client pb.SchedulerServiceClient, file string) (size int64, err error) {
	partial, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-*") // readable by its owner only
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			os.Remove(partial.Name())
		}
	}()
	size, err = copyBackup(ctx, client, partial)
	if err = errors.Join(err, partial.Sync(), partial.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(partial.Name(), file)
}

func copyBackup(ctx context.Context, client pb.SchedulerServiceClient, out io.Writer) (size int64, err error) {
	stream, err := client.Backup(ctx, &pb.BackupRequest{})
	if err != nil {
		return 0, err
	}
	for {
		piece, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && size == 0:
			return 0, errors.New("the server sent an empty archive")
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return size, err
		}
		n, err := out.Write(piece.GetData())
		size += int64(n)
		if err != nil {
			return size, err
		}
	}
}

// byteSize shows a size with three digits: "1.25 MiB".
func byteSize(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size /= 1 << 10; size < 1000 {
			break
		}
	}
	return fmt.Sprintf("%.3g %s", size, unit)
}
