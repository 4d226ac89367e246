package channel

import "testing"

func TestClosedDoesNotBlock(t *testing.T) {
	c := make(chan struct{})
	if Closed(c) {
		t.Error("an open channel is closed")
	}
	if Closed(nil) {
		t.Error("a nil channel is closed")
	}
	close(c)
	if !Closed(c) {
		t.Error("a closed channel is open")
	}
}
