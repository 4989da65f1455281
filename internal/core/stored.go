package core

import (
	"context"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Stored reports whether a store that no scheduler uses yet has a definition of the flow: it was created before, so a once of its may
// have passed.
func Stored(ctx context.Context, s store.Store, flowID string) (bool, error) {
	definition, err := s.Get(ctx, shardOf(flowID), key(definitionKey, flowID))
	return definition != nil, err
}
