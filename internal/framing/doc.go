// Package framing takes the objects out of the body of a list or a watch before client-go reads it.
//
// Transport replaces the body of an answer by one that works inside Read. It reads the real body,
// decodes each object and hands it over. The reader gets the rest:
// of a list everything but its items, and of a watch the events without an object, such as
// bookmarks and errors. Whatever this package does not understand reaches the reader byte for
// byte, so that client-go judges it as it does without this package.
//
// Requests, rights, retries, timeouts and errors stay client-go's. A Tap chooses the request
// whose objects are taken; see With.
//
// Limits: an item of a list may have 64 MiB and an event 16 MiB, which is client-go's limit for an
// event. An object may be nested 9,000 deep. Objects beyond that go client-go's way. A list as a
// whole has no limit.
package framing
