// Package membership connects a group with its members, without a method that programs see.
package membership

import "context"

// Worker is embedded in a member that works with what others deliver, such as a controller, under a
// name that is not exported. Its methods are those for which informer.Member leaves the choice. It is
// what Removed calls, which must not block.
type Worker func()

// StopsFirst returns true: the members that deliver stop later.
func (Worker) StopsFirst() bool { return true }

// Removed calls the Worker.
func (w Worker) Removed() { w() }

// Handler is an ErrorHandler.
type Handler = func(ctx context.Context, err error)

type handlerKey struct{}

// WithHandler returns a ctx for the Run of a member. Report finds handler in it.
func WithHandler(ctx context.Context, handler Handler) context.Context {
	return context.WithValue(ctx, handlerKey{}, handler)
}

// Once returns a Handler that calls handler with a ctx in which Report finds none. So handler may call
// Report without being called again.
func Once(handler Handler) Handler {
	return func(ctx context.Context, err error) { handler(WithHandler(ctx, nil), err) }
}

// Report calls the handler that WithHandler has put into ctx, or otherwise if there is none.
func Report(ctx context.Context, err error, otherwise Handler) {
	if handler, _ := ctx.Value(handlerKey{}).(Handler); handler != nil {
		otherwise = handler
	}
	otherwise(ctx, err)
}
