package informer

// places is where a store stands in the history of each source that has delivered items. The
// items that come from no source have a place, too.
type places map[*scope]*place

func (p places) of(s *scope) *place {
	if p[s] == nil {
		p[s] = &place{}
	}
	return p[s]
}

// place is where a store stands in the history of one source.
type place struct {
	version string
	exact   bool // the store is what the source was at the version
	spoiled bool // an object of the list in progress could not be stored
	// doubtful says that versions in a durable store may belong to states that the server has
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
