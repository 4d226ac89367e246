package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

const (
	// shownClusters is how many clusters of an informer have their own series. The limit keeps a large fleet
	// from flooding Prometheus.
	shownClusters = 100
	// otherClusters is the value of the label source_cluster for all other clusters, and for a cluster with
	// this name. The label is not called cluster, because many programs give all of their metrics a label
	// with that name.
	otherClusters = "other"
)

var clusterUnread = prom.NewDesc("informer_cluster_unread",
	"1 if the cluster has not been listed, or cannot be read now; for the label other, how many of the clusters after the first 100 are so.",
	[]string{"informer", "source_cluster"}, nil)

func collectClusters(ch chan<- prom.Metric, all []*informer.Health, name string) {
	counts, order := map[string]float64{}, []string{}
	for _, h := range all {
		for _, c := range h.Clusters {
			cluster := label(c.Cluster)
			if _, known := counts[cluster]; !known {
				if len(order) >= shownClusters {
					cluster = otherClusters
				}
				if _, known := counts[cluster]; !known {
					order = append(order, cluster)
				}
			}
			if counts[cluster] += flag(unread(c)); cluster != otherClusters { // another informer of the name may not read it either
				counts[cluster] = min(counts[cluster], 1)
			}
		}
	}
	for _, cluster := range order {
		ch <- prom.MustNewConstMetric(clusterUnread, prom.GaugeValue, counts[cluster], name, cluster)
	}
}
