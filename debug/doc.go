package debug

// The parts of the package.
//
//   - handler.go answers requests, and refuses those that a hostile site may have caused. view.go takes the state of all
//     members at one moment, and trail.go keeps the last minute of each watcher.
//   - Each of these decides the state of a member, and whether a person should look at it: state.go for informers and
//     watchers, controller.go for controllers, set.go for sets of package shards, member.go for other members.
//   - things.go orders the sections of the page. page.go has the template, the figures of informers, and the limits.
//   - text.go shortens texts and formats numbers. visible.go escapes characters that a reader cannot see.
