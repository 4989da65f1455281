package schedctl

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// clockSkewWorthSaying is a difference between the clocks here and there that explains odd times in tables.
const clockSkewWorthSaying = 5 * time.Second

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show the daemon's version, limits and readiness",
		Args:  cobra.NoArgs,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, _ []string) error {
			info, err := call(ctx, a, client.GetServerInfo, &pb.GetServerInfoRequest{})
			if err != nil {
				return err
			}
			return a.printer.show(view{
				message: info,
				names:   []string{info.GetInstanceId()},
				lines:   func(bool) []string { return a.printer.canvas.fields(a.infoFields(info)) },
			})
		}),
	}
}

func (a *app) infoFields(info *pb.GetServerInfoResponse) [][2]string {
	ready := "yes"
	if !info.GetReady() {
		ready = "no: " + orNone(info.GetNotReadyReason())
	}
	fields := [][2]string{
		{"Server", a.conn.server},
		{"Version", fmt.Sprintf("%s (%s, tzdata %s)", orNone(info.GetVersion()), orNone(info.GetGoVersion()), orNone(info.GetTzdataVersion()))},
		{"Ready", ready},
		{"Started", a.clock.exact(info.GetStartTime())},
		{"Store", orNone(info.GetStore())},
		{"Instance", orNone(info.GetInstanceId())},
		{"Flows", strconv.FormatUint(info.GetFlowCount(), 10)},
		{"Running", fmt.Sprintf("%d of at most %d", info.GetRunning(), info.GetMaxConcurrentRuns())},
		{"Revision", strconv.FormatUint(info.GetRevision(), 10)},
	}
	if due := info.GetOldestDue(); due.AsDuration() > 0 {
		fields = append(fields, [2]string{"Oldest due", took(due) + " late"})
	}
	if at := info.GetServerTime(); at != nil {
		if skew := at.AsTime().Sub(a.clock.now()); skew.Abs() > clockSkewWorthSaying {
			fields = append(fields, [2]string{"Clock", fmt.Sprintf("the server's differs from this machine's by %s", shortDuration(skew))})
		}
	}
	return fields
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of schedctl; the daemon's is in info",
		Args:  cobra.NoArgs,
		RunE: a.offline(func(context.Context, []string) error {
			type version struct {
				Version   string `json:"version"`
				GoVersion string `json:"go_version"`
				Platform  string `json:"platform"`
			}
			v := version{a.env.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.printer.show(view{
				names:  []string{v.Version},
				encode: func() ([]byte, error) { return json.Marshal(v) },
				lines: func(bool) []string {
					return []string{fmt.Sprintf("schedctl %s (%s, %s)", v.Version, v.GoVersion, v.Platform)}
				},
			})
		}),
	}
}
