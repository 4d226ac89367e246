package prometheus_test

import (
	"fmt"
	"testing"

	"github.com/customcacheinformer/informer"
)

// The first 100 clusters have series of their own. The others are counted together, with one that is named like their label.
func TestTheFirstClustersHaveSeries(t *testing.T) {
	h := informer.Health{Name: "i", Clusters: []informer.SourceHealth{{Cluster: "east"}, {Cluster: "other"}, {Cluster: "odd\xff", Synced: true}}}
	for n := range 200 {
		h.Clusters = append(h.Clusters, informer.SourceHealth{Cluster: fmt.Sprint("more-", n), Synced: n%2 == 0})
	}
	again := informer.Health{Name: "i", Clusters: h.Clusters[:1]} // of another informer with the same name
	all := scrape(t, registered(fixed(h, again)))
	if n := len(having(all, "informer_cluster_unread")); n != 100 {
		t.Errorf("%d series", n)
	}
	// 97 of the others have series. Of the rest, those with odd numbers from 97 to 199 are unread, and so is the cluster named other.
	for cluster, want := range map[string]float64{"east": 1, "odd\uFFFD": 0, "more-1": 1, "more-96": 0, "other": 53} {
		if got, there := all[fmt.Sprintf(`informer_cluster_unread{informer="i",source_cluster=%q}`, cluster)]; got != want || !there {
			t.Errorf("%s: %v, want %v", cluster, got, want)
		}
	}
}
