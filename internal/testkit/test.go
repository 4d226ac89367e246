package testkit

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// InBubble runs a subtest in a new synctest bubble.
func InBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Must fails and ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NoError fails the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Equal fails the test unless got and want look the same as text.
func Equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// ErrorContains fails the test unless err is an error whose text contains text.
func ErrorContains(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want it to contain %q", err, text)
	}
}

// ErrorIs fails the test unless errors.Is(err, target).
func ErrorIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got %v, want %v", err, target)
	}
}

// AtMost fails the test if got is more than most.
func AtMost[N cmp.Ordered](t *testing.T, what string, got, most N) {
	t.Helper()
	if got > most {
		t.Errorf("%s: %v, want %v at most", what, got, most)
	}
}

// AtLeast fails the test if got is less than least.
func AtLeast[N cmp.Ordered](t *testing.T, what string, got, least N) {
	t.Helper()
	if got < least {
		t.Errorf("%s: %v, want %v at least", what, got, least)
	}
}
