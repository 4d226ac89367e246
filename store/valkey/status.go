package valkey

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Status is the state of a store on the server at one moment.
type Status struct {
	Writer     string    // Options.Writer of the Store that writes
	Token      int64     // Options.Token of that Store
	Since      time.Time // when that Store was opened, by the server's clock, to the second
	Version    string    // the resourceVersion of the stored state; "" if there is no exact one, such as during a list
	Objects    int64     // how many objects the store has
	Tombstones int64     // how many deleted objects it keeps, because some watcher may not have handled their delete
	Log        int64     // how many changes the server keeps for readers
}

// Status returns the state of the store. It blocks for two requests to the server, each for at most 10
// seconds. It returns an error that wraps ErrLost if the server lacks the store or a part of it, and an error
// that wraps ErrFenced if another Store writes.
func (s *Store) Status(ctx context.Context) (Status, error) {
	fields, err := s.about(ctx, statusFields...)
	return statusOf(ctx, s.client, s.place, fields, err)
}

// Status returns the state of the store. It blocks for two requests to the server, each for at most 10
// seconds. It returns an error that wraps ErrLost if the server lacks the store or a part of it.
func (s *Source) Status(ctx context.Context) (Status, error) {
	reply, err := read(ctx, s.client, s.place, aboutScript, append([]string{"", "0"}, statusFields...)...)
	var fields []string
	if err == nil {
		fields, err = reply.AsStrSlice()
	}
	return statusOf(ctx, s.client, s.place, fields, err)
}

var statusFields = []string{"writer", "version", "token", "since", "objects", "tombstones"}

func statusOf(ctx context.Context, client valkey.Client, p place, fields []string, err error) (Status, error) {
	if err != nil {
		return Status{}, fmt.Errorf("valkey: status: %w", err)
	}
	st := Status{Writer: fields[0], Version: fields[1]}
	var since int64
	for i, to := range []*int64{&st.Token, &since, &st.Objects, &st.Tombstones} {
		if *to, err = strconv.ParseInt(fields[i+2], 10, 64); err != nil {
			return Status{}, fmt.Errorf("valkey: status: %s: %w", statusFields[i+2], err)
		}
	}
	st.Since = time.Unix(since, 0)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if st.Log, err = do(ctx, client, client.B().Xlen().Key(p.log).Build()).AsInt64(); err != nil {
		return Status{}, fmt.Errorf("valkey: status: %w", err)
	}
	return st, nil
}
