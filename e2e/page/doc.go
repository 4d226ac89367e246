// Package page tests the page of informer.DebugHandler in a browser: a Chromium without a
// window, which the tests skip for if there is none, unless BROWSER=required says that
// they must not. "make browser" installs it.
//
// To take the picture of the page, which needs a minute to fill its charts:
//
//	go test ./page -run Picture -screenshot "$PWD/page.png"
package page
