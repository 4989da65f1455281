package channel

import (
	"context"
	"errors"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/task"
	"google.golang.org/grpc"
)

// ResourceKind is a gRPC channel.
var ResourceKind = task.ResourceKind{Field: "channel", New: newChannel}

// Channel is a connection that tasks share, with the metadata that all calls over it carry. It is opened by the first call,
// not by Setup: a target that is away must not keep the scheduler from starting.
type Channel struct {
	definition *schedulerdv1.ChannelResource
	metadata   pairs
	conn       *grpc.ClientConn
}

func newChannel(r *schedulerdv1.Resource, env *task.Env) (resource.Resource, error) {
	c := &Channel{definition: r.GetChannel()}
	c.metadata = compileMetadata(env, "channel.metadata", c.definition.GetMetadata())
	if err := cleanTarget(c.definition.GetTarget()); err != nil {
		env.Faultf("channel.target", "%v", err)
		return c, nil
	}
	conn, _, err := dial(c.definition.GetTarget(), c.definition.GetTls(), c.definition.GetServiceConfig()) // says what is wrong; opens nothing
	if err != nil {
		env.Faultf("channel", "%v", err)
		return c, nil
	}
	return c, conn.Close()
}

// Setup prepares the connection, and reads the files of its transport security.
func (c *Channel) Setup(context.Context) error {
	conn, source, err := dial(c.definition.GetTarget(), c.definition.GetTls(), c.definition.GetServiceConfig())
	if err != nil {
		return err
	}
	if source != nil {
		if _, err := source.Config(); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	c.conn = conn
	return nil
}

// Teardown closes the connection.
func (c *Channel) Teardown(context.Context) error { return c.conn.Close() }
