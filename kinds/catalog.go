package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// definition holds the parts of a CRD that the catalog needs.
type definition struct {
	name, uid   string
	offer       Offer
	established bool
	reason      string // why the kind is not established, or its names are not accepted
	terminating bool
}

// service holds the parts of an APIService that the catalog needs. Its group is served by a server of its own.
type service struct {
	group  string
	reason string // why the server is not available; "" if it is available
}

const (
	coldTime = time.Second      // how long a CRD or APIService must be gone before its objects count as deleted: it may be created again
	tombTime = 10 * time.Minute // how long discovery may still show a kind whose CRD or APIService is gone
)

// catalog is what is known of the kinds of the server. It starts no goroutine. The caller must lock it.
type catalog struct {
	listed  bool                        // the set may list CRDs, and knows all of them
	blind   bool                        // the CRDs cannot be listed, so discovery decides
	asked   bool                        // discovery has worked; while blind, at least once since the CRDs could not be listed
	found   map[schema.GroupKind]*Offer // by discovery
	groups  map[string]bool             // in the last discovery
	broken  map[string]error            // the groups for which the last discovery was not complete
	failure error                       // of the whole last discovery

	crds     map[string]*definition             // by name
	byKind   map[schema.GroupKind][]*definition // several if their names conflict
	services map[string]service                 // by name
	tombs    map[string]time.Time               // when CRDs, by name, and all APIServices of groups, as "*." and the group, were gone

	servicesListed    bool // the APIServices are known
	servicesForbidden bool // they cannot be listed, so discovery decides
}

func newCatalog() catalog {
	return catalog{
		found: map[schema.GroupKind]*Offer{}, groups: map[string]bool{}, broken: map[string]error{}, crds: map[string]*definition{},
		byKind: map[schema.GroupKind][]*definition{}, services: map[string]service{}, tombs: map[string]time.Time{},
	}
}

// put stores a CRD, and returns the kinds that it changes.
func (c *catalog) put(d *definition) (kinds []schema.GroupKind) {
	kinds = c.replace(d.name)
	c.crds[d.name] = d
	of := schema.GroupKind{Group: d.offer.Group, Kind: d.offer.Kind}
	c.byKind[of] = append(c.byKind[of], d)
	// The one that the server serves comes first.
	slices.SortFunc(c.byKind[of], func(a, b *definition) int {
		if a.established != b.established && a.established {
			return -1
		} else if a.established != b.established {
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return slices.Compact(append(kinds, of))
}

// remove removes the CRD with this name, and returns its kind, or nil if there is none.
func (c *catalog) remove(name string) []schema.GroupKind {
	kinds := c.replace(name)
	if kinds != nil {
		c.bury(name)
	}
	return kinds
}

// replace forgets a CRD, and returns its kind, or nil if there is none.
func (c *catalog) replace(name string) []schema.GroupKind {
	d := c.crds[name]
	if d == nil {
		return nil
	}
	delete(c.crds, name)
	of := schema.GroupKind{Group: d.offer.Group, Kind: d.offer.Kind}
	if c.byKind[of] = slices.DeleteFunc(c.byKind[of], func(o *definition) bool { return o == d }); len(c.byKind[of]) == 0 {
		delete(c.byKind, of)
	}
	return []schema.GroupKind{of}
}

func (c *catalog) bury(name string) {
	maps.DeleteFunc(c.tombs, func(_ string, at time.Time) bool { return time.Since(at) > tombTime })
	c.tombs[name] = time.Now()
	c.forgetBuried()
}

// forgetBuried drops the kinds that discovery still shows although they are gone. Otherwise they would come back
// when their tombs end.
func (c *catalog) forgetBuried() {
	maps.DeleteFunc(c.found, func(of schema.GroupKind, o *Offer) bool {
		return c.buried(of.Group, o.Resource) || c.buried(of.Group, "*")
	})
}

// buried reports whether the CRD of a resource is gone. For the resource "*" it reports whether all APIServices of
// the group are gone.
func (c *catalog) buried(group, resource string) bool {
	at, buried := c.tombs[resource+"."+group]
	return buried && time.Since(at) <= tombTime
}

// cold reports whether a tomb is so old that the watch would have shown a new CRD or APIService by now.
func (c *catalog) cold(of schema.GroupResource) bool {
	return time.Since(c.tombs[of.String()]) >= coldTime
}

// putService stores an APIService that has a server of its own.
func (c *catalog) putService(name string, s service) {
	if _, had := c.services[name]; !had { // perhaps in place of CRDs
		maps.DeleteFunc(c.tombs, func(name string, _ time.Time) bool {
			_, group, _ := strings.Cut(name, ".")
			return group == s.group
		})
	}
	c.services[name] = s
}

// removeService removes the APIService with this name.
func (c *catalog) removeService(name string) {
	s, ok := c.services[name]
	if !ok {
		return
	}
	delete(c.services, name)
	if c.serviceOf(s.group) == "" {
		c.bury("*." + s.group)
	}
}

// serviceOf returns the name of an APIService of a group, or "" if there is none. It prefers one that is not
// available.
func (c *catalog) serviceOf(group string) (name string) {
	for _, n := range slices.Sorted(maps.Keys(c.services)) {
		if s := c.services[n]; s.group == group && (name == "" || s.reason != "") {
			name = n
		}
	}
	return name
}

// mayShow reports whether discovery may show other kinds of a group than it has shown. It does so for the groups that the API
// server itself has, and those that have an APIService. Other groups are only in CRDs.
func (c *catalog) mayShow(group string) bool {
	return c.asked && (c.groups[group] || c.serviceOf(group) != "")
}

// offers returns all kinds that the server offers.
func (c *catalog) offers() map[schema.GroupKind]Offer {
	all := map[schema.GroupKind]Offer{}
	for of := range c.found {
		all[of] = Offer{}
	}
	for of := range c.byKind {
		all[of] = Offer{}
	}
	for of := range all {
		if o, ok := c.offer(of); ok {
			all[of] = o
		} else {
			delete(all, of)
		}
	}
	return all
}

// offer returns how the server offers a kind, or false if the server does not offer it.
func (c *catalog) offer(of schema.GroupKind) (Offer, bool) {
	if d := c.defined(of); d != nil {
		return d.offer, d.established && len(d.offer.Versions) > 0
	}
	if d := c.shown(of); d != nil {
		return *d, true
	}
	return Offer{}, false
}

// defined returns the CRD of a kind. It returns nil if there is none, or if the CRDs cannot be listed, so that they
// may be out of date.
func (c *catalog) defined(of schema.GroupKind) *definition {
	if ds := c.byKind[of]; len(ds) > 0 && !c.blind {
		return ds[0]
	}
	return nil
}

// shown returns what discovery shows of a kind. It returns nil if discovery does not show the kind, or if a CRD
// decides about the kind.
func (c *catalog) shown(of schema.GroupKind) *Offer {
	d := c.found[of]
	switch {
	case d == nil || !c.listed && !c.blind || c.blind && !c.asked:
		return nil
	case c.blind:
		return d
	}
	if c.crds[d.Resource+"."+of.Group] != nil || c.buried(of.Group, d.Resource) || c.buried(of.Group, "*") {
		return nil
	}
	return d
}

// finding is what the catalog knows of a kind that a set wants.
type finding struct {
	place
	served bool
	gone   bool   // the objects of the kind are deleted
	why    string // why the kind is not served, or soon will not be
}

// absence is how long discovery has not shown a kind.
type absence struct {
	since time.Time // zero if discovery shows the kind
	long  bool      // a later discovery has not shown it either, after missPause or more
}

// find looks for a kind. at is the place where the kind is read, or nil.
func (c *catalog) find(k Kind, at *place, away absence) finding {
	of := k.GroupKind()
	if d := c.defined(of); d != nil {
		own := slices.IndexFunc(c.byKind[of], func(o *definition) bool { return at != nil && o.uid == at.uid })
		if own >= 0 && !d.established { // the other one has never served the kind
			d = c.byKind[of][own]
		}
		f := d.find(k)
		f.gone = !f.served && at != nil && at.uid != "" && own < 0 && (away.long || c.cold(at.resource.GroupResource()))
		return f
	}
	if d := c.shown(of); d != nil {
		f := finding{}
		if name := c.serviceOf(of.Group); name != "" && c.services[name].reason != "" {
			f.why = fmt.Sprintf("the APIService %s is not available: %s", name, c.services[name].reason)
		}
		return f.at(k, *d, place{guessed: c.blind || at != nil && at.guessed})
	}
	return c.missing(of, at, away)
}

// find returns the finding for a kind that has this CRD.
func (d *definition) find(k Kind) finding {
	f := finding{why: d.reason}
	switch {
	case !d.established:
		f.why = fmt.Sprintf("the CRD %s is not established: %s", d.name, f.why)
		return f
	case d.terminating:
		f.why = fmt.Sprintf("the CRD %s is being deleted", d.name)
	case f.why != "":
		f.why = fmt.Sprintf("the names of the CRD %s are not accepted: %s", d.name, f.why)
	}
	return f.at(k, d.offer, place{uid: d.uid})
}

// missing returns the finding for a kind that the catalog does not have.
func (c *catalog) missing(of schema.GroupKind, at *place, away absence) finding {
	switch failed := c.broken[of.Group]; {
	case c.listed && !c.blind && at != nil && at.uid != "":
		return finding{gone: away.long || c.cold(at.resource.GroupResource()), why: "the CRD was deleted"}
	case c.listed && !c.blind && at != nil && c.buried(of.Group, "*"):
		return finding{gone: away.long || c.cold(schema.GroupResource{Group: of.Group, Resource: "*"}), why: "the APIServices of group " + of.Group + " were deleted"}
	case !c.listed && !c.blind:
		return finding{why: "the CRDs are not listed yet"}
	case c.failure != nil:
		return finding{why: fmt.Sprintf("discovery fails: %v", c.failure)}
	case failed != nil:
		return finding{why: fmt.Sprintf("discovery of group %s fails: %v", of.Group, failed)}
	case !c.asked:
		return finding{why: "discovery has not answered yet"}
	}
	f := finding{why: "the server does not offer the kind"}
	if at != nil && away.long {
		// Discovery may leave out a group whose server is away, but its APIService is there then.
		f.gone = c.groups[of.Group] && (c.blind || at.guessed && c.serviceOf(of.Group) == "") || !c.groups[of.Group] && (c.servicesForbidden || c.servicesListed && c.serviceOf(of.Group) == "")
	}
	return f
}

// at completes the finding with the place of a kind that is offered. If the server does not serve what k asks for,
// why has the reason.
func (f finding) at(k Kind, o Offer, p place) finding {
	p.namespaced = o.Namespaced
	p.resource = schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: o.Resource}
	switch {
	case len(o.Versions) == 0:
		f.why = "no version is served"
		return f
	case k.Version == "":
		p.resource.Version = o.Versions[0]
	case !slices.Contains(o.Versions, k.Version):
		f.why = fmt.Sprintf("version %s is not served, but %s", k.Version, strings.Join(o.Versions, ", "))
		return f
	}
	if k.Namespace != "" && !o.Namespaced {
		f.why = "Kind.Namespace is set, but the kind has no namespaces"
		return f
	}
	f.served, f.place = true, p
	return f
}

// byPreference compares versions in the order in which an API server prefers the versions of CRDs: v2 before v1, and
// v1 before v1beta1.
func byPreference(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) }
