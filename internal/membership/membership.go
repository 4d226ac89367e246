// Package membership connects a group with its members, without methods in the public API.
package membership

import "context"

// Worker is embedded in a member that works with what others deliver, such as a controller, under a
// name that is not exported. It adds the optional methods of informer.Member. Removed calls the
// function, which must not block.
type Worker func()

// StopsFirst returns true, so that the members that deliver stop later.
func (Worker) StopsFirst() bool { return true }

// Removed calls w.
func (w Worker) Removed() { w() }

// Handler is an ErrorHandler.
type Handler = func(ctx context.Context, err error)

type handlerKey struct{}

// WithHandler returns a ctx for the Run of a member. With this ctx, Report calls handler.
func WithHandler(ctx context.Context, handler Handler) context.Context {
	return context.WithValue(ctx, handlerKey{}, handler)
}

// Once returns a Handler that calls handler with a ctx that has no handler. So handler may call
// Report without being called again.
func Once(handler Handler) Handler {
	return func(ctx context.Context, err error) { handler(WithHandler(ctx, nil), err) }
}

// Report calls the handler of ctx, see WithHandler, or calls otherwise if ctx has none.
func Report(ctx context.Context, err error, otherwise Handler) {
	if handler, _ := ctx.Value(handlerKey{}).(Handler); handler != nil {
		otherwise = handler
	}
	otherwise(ctx, err)
}
