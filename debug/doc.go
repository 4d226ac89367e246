// Package debug serves a live page about the informers, the controllers, the sets of package shards and other
// members of a program's group, and the same as JSON. It answers questions of an operator: whether the informer
// has synced, what fails, which watcher is late and with which object, which key fails in a controller, and
// which buckets (shares of the keys) this replica owns.
//
// It is a separate package because it needs html/template, which programs without the page need not contain.
package debug

// The parts of the package.
//
//   - handler.go answers requests, and refuses those that a hostile site may have caused. view.go takes the state of all
//     members at one moment, and trail.go keeps the last minute of each watcher, with its rate.
//   - Each of these decides the state of a member, and whether a person should look at it: state.go for informers and
//     watchers, controller.go for controllers, set.go for sets of package shards, member.go for other members.
//   - things.go orders the sections of the page. page.go has the template, the figures of informers, and the limits.
//   - text.go shortens texts and formats numbers. visible.go escapes characters that a reader cannot see.
