package kinds

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Discovery is a discovery client, such as clientset.Discovery(). If it also has the method ServerGroupsAndResourcesWithContext,
// as the client of client-go 0.37 has, a [Set] calls that method. Otherwise a call under way does not end with the ctx of [Set.Run],
// which may then return up to 32 s late.
type Discovery interface {
	// ServerGroupsAndResources returns the API groups and the resources of the server. If it cannot read some groups, it returns the
	// others and an error that wraps a *discovery.ErrGroupDiscoveryFailed, as client-go does.
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

func ask(ctx context.Context, d Discovery) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	type withContext interface {
		ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
	}
	if d, ok := d.(withContext); ok {
		return d.ServerGroupsAndResourcesWithContext(ctx)
	}
	return d.ServerGroupsAndResources()
}

// answer is an answer of discovery.
type answer struct {
	found  map[schema.GroupKind]*Offer
	groups map[string]bool
	broken map[string]error // groups that are not complete
}

// readAnswer returns what an answer of discovery shows. It returns an error if the answer shows nothing usable.
func readAnswer(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, err error) (*answer, error) {
	a := &answer{found: map[schema.GroupKind]*Offer{}, groups: map[string]bool{}, broken: map[string]error{}}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv, err := range partial.Groups {
			a.broken[gv.Group] = err
		}
	case err != nil:
		return nil, err
	}
	rank := map[string]int{} // by group and version; 0 if the group does not list it
	for _, group := range groups {
		if group == nil {
			continue
		}
		a.groups[group.Name] = true
		rank[group.PreferredVersion.GroupVersion] = len(group.Versions) + 1
		for n, v := range group.Versions {
			rank[v.GroupVersion] = max(rank[v.GroupVersion], len(group.Versions)-n)
		}
	}
	delete(a.groups, "")
	if len(a.groups)+len(a.broken) == 0 {
		// client-go treats a 403 or a 404 as an answer without groups, but every server has groups.
		return nil, errors.New("the answer shows no group: discovery may be forbidden")
	}
	a.groups[""] = true
	lists = slices.DeleteFunc(slices.Clone(lists), func(l *metav1.APIResourceList) bool { return l == nil })
	slices.SortStableFunc(lists, func(x, y *metav1.APIResourceList) int {
		if order := rank[y.GroupVersion] - rank[x.GroupVersion]; order != 0 {
			return order
		}
		return strings.Compare(x.GroupVersion, y.GroupVersion)
	})
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			a.take(gv, r)
		}
	}
	return a, nil
}

// take adds a resource that can be listed and watched. It ignores all others. If several resources have one kind, the first
// counts.
func (a *answer) take(gv schema.GroupVersion, r metav1.APIResource) {
	verbs := []string(r.Verbs)
	if strings.Contains(r.Name, "/") || !slices.Contains(verbs, "list") || !slices.Contains(verbs, "watch") {
		return
	}
	of := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
	o := a.found[of]
	if o == nil {
		o = &Offer{Group: gv.Group, Kind: r.Kind, Resource: r.Name, Namespaced: r.Namespaced, Categories: r.Categories}
		a.found[of] = o
	}
	if o.Resource == r.Name && !slices.Contains(o.Versions, gv.Version) {
		o.Versions = append(o.Versions, gv.Version)
	}
}

// learn stores an answer of discovery. Kinds of a group whose answer is not complete stay as they were.
func (c *catalog) learn(a *answer) {
	for of, o := range c.found {
		if a.broken[of.Group] != nil && a.found[of] == nil {
			a.found[of] = o
		}
	}
	c.found, c.groups, c.broken, c.failure, c.asked = a.found, a.groups, a.broken, nil, true
	maps.Copy(c.groups, keysOf(a.broken))
	if !c.blind {
		c.forgetBuried()
	}
}

func keysOf(m map[string]error) map[string]bool {
	keys := map[string]bool{}
	for key := range m {
		keys[key] = true
	}
	return keys
}
