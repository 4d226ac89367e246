package cluster

import (
	"net/http"
	"path"
	"strings"
)

// Call is a request to the API server and its answer.
type Call struct {
	Verb     string // such as "PUT"
	Resource string // such as "websites/status"
	Code     int    // such as 409
}

// Calls counts the requests of each sort.
type Calls map[Call]int

// RequestOf returns the verb, the resource and the name of the object of a request.
func RequestOf(r *http.Request) (verb, resource, name string) {
	// apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 5 && parts[3] == "namespaces" {
		parts = parts[2:]
	}
	for len(parts) < 6 {
		parts = append(parts, "")
	}
	return r.Method, path.Join(parts[3], parts[5]), parts[4]
}

// Writes returns the number of requests that were meant to change something.
func (c Calls) Writes() int {
	return c.sum(func(call Call) bool { return call.Verb != http.MethodGet })
}

// Conflicts returns the number of writes that were refused because they were based on an
// outdated version.
func (c Calls) Conflicts() int {
	return c.sum(func(call Call) bool { return call.Verb == http.MethodPut && call.Code == http.StatusConflict })
}

// Refused returns the number of writes that were answered with an error.
func (c Calls) Refused() int {
	return c.sum(func(call Call) bool { return call.Verb != http.MethodGet && call.Code >= http.StatusBadRequest })
}

func (c Calls) sum(counts func(Call) bool) (n int) {
	for call, times := range c {
		if counts(call) {
			n += times
		}
	}
	return n
}
