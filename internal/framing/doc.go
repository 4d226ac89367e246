// Package framing takes the objects out of the body of a list or a watch before client-go reads it.
//
// Transport replaces the body of an answer. The new body reads the real body inside Read, decodes
// each object and passes it to a Tap. The reader gets the rest: of a list everything except its
// items, and of a watch the events without an object, such as bookmarks and errors. Everything
// that this package does not understand reaches the reader byte for byte, so client-go handles it
// as it does without this package.
//
// client-go still handles requests, rights, retries, timeouts and errors. A request needs a Tap in
// its ctx, see With.
//
// Limits: an item of a list may have 64 MiB, and an event 16 MiB, which is client-go's limit. An
// object may be nested 9,000 deep. Larger objects are left to client-go. A list as a whole has no
// limit.
package framing

// The parts of the package.
//
//   - transport.go decides which answers are taken apart, and clients.go which clients leave objects unchanged. tap.go is
//     the Tap.
//   - body.go is the new body of an answer, and read.go its Read. json.go and binary.go take apart lists and events.
//   - type.go decodes an object, and decides whether client-go would do so. omit.go leaves out fields.
//   - window.go has the bytes that were read, and the limits. scan.go finds the ends of values in JSON, and wire.go fields
//     in protobuf.
