package debug

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// cut returns the first end bytes of text, or fewer, so that it does not cut a character in two. It
// calls visible for the result.
func cut(text string, end int) string {
	if len(text) <= end {
		return visible(text)
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return visible(text[:end]) + " …"
}

// ago returns how long before the time of the page t was, or "never" for the zero time.
func ago(page, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return roundDuration(page.Sub(t)) + " ago"
}

// in returns how long after the time of the page t is, or "" for the zero time.
func in(page, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "in " + roundDuration(t.Sub(page))
}

// some returns the first three keys, and how many more there are.
func some(keys []string) string {
	const shown = 3
	text := strings.Join(keys[:min(len(keys), shown)], ", ")
	if more := len(keys) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// roundDuration returns d in its one or two largest units, and never below a second: smaller units
// would only flicker.
func roundDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 2*day:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
}

// quiet returns the CSS class of a figure that is zero, so that other figures stand out, and "" for
// these.
func quiet(n any) string {
	switch fmt.Sprint(n) {
	case "0", "0 s", "0.0":
		return " quiet"
	}
	return ""
}

// compact returns a number in at most five characters, if it is less than a billion.
func compact(n int) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}

// plural returns n and what, with an "s" unless n is 1.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
