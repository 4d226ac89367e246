// Package page tests the page of debug.Handler in a browser, a Chromium without a
// window. "make browser" installs one. Without a browser the tests are skipped, or fail if
// BROWSER=required is set.
//
// Taking the picture of the page needs a minute, to fill its charts:
//
//	go test ./page -run Picture -screenshot "$PWD/page.png"
package page
