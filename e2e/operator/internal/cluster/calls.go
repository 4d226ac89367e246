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

// Calls says how many there were of each.
type Calls map[Call]int

// RequestOf returns what r is about: the verb, the resource, and the name of the object.
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

// Writes returns the number of requests that wanted to change something.
func (c Calls) Writes() int {
	return c.sum(func(call Call) bool { return call.Verb != http.MethodGet })
}

// Conflicts returns the number of writes that were refused because what they were based
// on was not the newest.
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
