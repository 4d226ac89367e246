// Package field finds the values of a field in API objects, by the path of the field in their JSON.
package field

import (
	"fmt"
	"regexp"
	"strings"
)

// path is a path with its parts, which are names of fields and keys of maps.
type path struct {
	text  string
	parts []string
}

var first = regexp.MustCompile(`^(?:\.([^.\[]+)|\['(.+?)'\])`)

// parse splits a path such as spec.nodeName or metadata.labels['a.b/c'] into its parts.
func parse(text string) (path, error) {
	p := path{text: text}
	for rest := "." + text; rest != ""; {
		m := first.FindStringSubmatch(rest)
		if m == nil {
			return p, p.errorf(`part %d, at %q, is neither a name after a dot nor a key such as ['a.b']`, len(p.parts)+1, rest)
		}
		p.parts, rest = append(p.parts, m[1]+m[2]), rest[len(m[0]):]
	}
	return p, nil
}

// Parse returns the parts of a path, or an error if it is malformed.
func Parse(text string) ([]string, error) {
	p, err := parse(text)
	return p.parts, err
}

// before returns the path without the parts in left.
func (p path) before(left []string) string {
	if len(left) == len(p.parts) {
		return "the object"
	}
	return strings.Join(p.parts[:len(p.parts)-len(left)], ".")
}

func (p path) errorf(format string, args ...any) error {
	return fmt.Errorf("path %q: "+format, append([]any{p.text}, args...)...)
}
