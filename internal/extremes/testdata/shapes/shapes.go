// Package shapes has a number in each place where a user can set one, and in some where nobody can.
package shapes

import (
	"net/http"
	"time"
)

// Level is an enumeration.
type Level uint8

// Options have numbers.
type Options[T any] struct {
	Size     int
	Ratio    *float32
	Level    Level
	Pauses   []time.Duration
	Limits   map[string]limits
	Other    *Others
	Retry    func(failures int) (wait time.Duration, again bool)
	Change   func(*limits)
	Observe  func(figures)
	Server   *http.Server
	Name     string
	Item     T
	internal int
	limits
}

// Others are walked by themselves.
type Others struct{ Count int }

// Policy is written by users, and by the library.
type Policy func(failures int) (wait time.Duration, again bool)

type limits struct {
	Most  uint
	Other *limits
}

type figures struct{ Count int }

type hidden struct{ deep }

type deep struct{}

func (deep) Delay(d time.Duration) {}
func (deep) delay(d time.Duration) {}

// Store has a method of a type inside it.
type Store struct{ hidden }

// Reader is implemented by the library.
type Reader interface {
	Page(limit int) figures
}

// New has an argument that is walked by itself, and returns a function and an interface.
func New[T any](opts Options[T], n int64, text string) (func(time.Duration) interface{ Sleep(d time.Duration) }, error) {
	_, _ = opts.internal, n
	return nil, nil
}

// Run calls f.
func Run(f func() (time.Duration, error)) figures { return figures{} }

func run(n int) {}
