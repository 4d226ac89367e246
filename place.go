package informer

import (
	"encoding/json"
	"strings"
)

// place is where a durable store stands in the history of one source.
type place struct {
	version string
	exact   bool // the store is what the source was at the version
	spoiled bool // an object of the list in progress could not be stored
	// doubtful says that versions in the store may belong to states that the server has
	// lost. The next bookmark ends the doubt.
	doubtful bool
}

// pass notes that an item is applied. While a list is being applied, the store is a
// mixture that the server never had. An object that could not be stored is missing until
// the next list.
func (p *place) pass(kind itemKind, broken bool, version string) {
	if broken {
		p.spoil()
	}
	switch kind {
	case itemForget, itemCleaned:
		return
	case itemList:
		p.exact, p.spoiled = false, false
	case itemListed:
		p.exact = !p.spoiled && version != "" && version != "0"
	case itemResumed:
		p.exact = true
	default:
		// An item without a version is part of a list, or of unknown age: then the store
		// matches no version.
		p.exact = p.exact && version != ""
	}
	if version != "" {
		p.version = version
	}
}

// spoil notes that an object could not be stored.
func (p *place) spoil() { p.exact, p.spoiled = false, true }

// bookmark returns the version at which the source can go on, and "" if it must list.
func (p place) bookmark() string {
	if !p.exact {
		return ""
	}
	return p.version
}

// readBookmark finds out from the bookmark of the store where it stands. It reports whether the
// store may hold objects of namespaces that the informer does not read.
//
// The bookmark of an informer over all namespaces is a resourceVersion. For an informer over
// some namespaces it is a JSON object: the version of each namespace, "" for one that must be
// listed. It names all namespaces of which the store may hold objects.
func (d *durableStore[T]) readBookmark() (foreign bool) {
	versions := map[string]string{}
	if d.intakes[0].namespace == "" {
		if !strings.HasPrefix(d.bookmark, "{") {
			versions[""] = d.bookmark
		}
	} else if json.Unmarshal([]byte(d.bookmark), &versions) != nil {
		versions, foreign = nil, true
	}
	known := len(versions)
	for _, from := range d.intakes {
		version, there := versions[from.namespace]
		if there {
			known--
		}
		from.place = place{version: version, exact: version != "", doubtful: version == ""}
	}
	return foreign || known > 0
}

// nextBookmark returns the bookmark that is true after the batch. It is "", like that of a store
// that must be listed, while the store may hold objects of other namespaces.
func (d *durableStore[T]) nextBookmark() string {
	if d.foreign {
		return ""
	}
	if d.intakes[0].namespace == "" {
		return d.intakes[0].place.bookmark()
	}
	versions, exact := map[string]string{}, false
	for _, from := range d.intakes {
		versions[from.namespace] = from.place.bookmark()
		exact = exact || versions[from.namespace] != ""
	}
	if !exact {
		return ""
	}
	encoded, err := json.Marshal(versions)
	if err != nil {
		panic(err) // it encodes every map of strings
	}
	return string(encoded)
}
