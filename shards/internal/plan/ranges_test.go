package plan

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/sets"
)

// tenants returns the weights of n namespaces.
func tenants(n int, weight func(i int) int) map[string]int {
	weights := map[string]int{}
	for i := range n {
		weights[fmt.Sprint("ns", i)] = weight(i)
	}
	return weights
}

var distributions = map[string]map[string]int{
	"none":         nil,
	"one":          {"default": 1000},
	"two":          {"default": 10, "kube-system": 1},
	"ns0 to ns99":  tenants(100, func(int) int { return 200 }),
	"Zipf":         tenants(500, func(i int) int { return 20_000 / (i + 1) }),
	"one of 20 %":  tenants(200, func(i int) int { return map[bool]int{true: 5000, false: 100}[i == 7] }),
	"empty spaces": tenants(50, func(i int) int { return i % 2 * 100 }),
}

func TestTheHashIsThatOfTheAPIServer(t *testing.T) {
	for _, namespace := range []string{"", "default", "ns0", "kube-system", strings.Repeat("x", 63)} {
		if got, want := fmt.Sprintf("%016x", hashOf(namespace)), sharding.HashField(namespace); got != want {
			t.Errorf("%q has the hash %s, want %s", namespace, got, want)
		}
	}
}

// Every namespace has one bucket, and the selectors of all replicas together select every object once.
func TestRangesAndSelectorsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for name, weights := range distributions {
		for _, buckets := range []int{1, 2, 64, 1024} {
			r := Cut(weights, buckets)
			if again, err := Parse(r.Text(), buckets); err != nil || !slices.Equal(again.Starts, r.Starts) || !slices.Equal(again.Weights, r.Weights) {
				t.Errorf("%s: the text %s is read as %v, %v", name, r.Text(), again, err)
			}
			sides := [2]sets.Set[int]{{}, {}}
			for b := range buckets {
				sides[random.IntN(2)].Insert(b)
			}
			spaces := []string{"", "default", "new", "ns1000"}
			for namespace := range weights {
				spaces = append(spaces, namespace)
			}
			for _, namespace := range spaces {
				b := r.Bucket(namespace)
				for _, side := range sides {
					if got := selects(t, r.Selector(side), namespace); got != side.Has(b) {
						t.Errorf("%s: %s is in bucket %d, and the selector of %v selects it: %v", name, namespace, b, slices.Sorted(maps.Keys(side)), got)
					}
				}
			}
			all := sides[0].Union(sides[1])
			if got := r.Selector(all); strings.Count(got, "shardRange") != 1 {
				t.Errorf("%s: the selector of all buckets is %s", name, got)
			}
			if got := r.Selector(sets.Set[int]{}); got != "" {
				t.Errorf("%s: the selector of no bucket is %s", name, got)
			}
		}
	}
}

// selects reports whether a selector selects objects in a namespace, as package sharding does it.
func selects(t *testing.T, selector, namespace string) bool {
	t.Helper()
	if selector == "" {
		return false
	}
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	for part := range strings.SplitSeq(selector, " || ") {
		args := strings.Split(strings.TrimSuffix(strings.TrimPrefix(part, "shardRange("), ")"), ", ")
		if len(args) != 3 {
			t.Fatalf("the selector %s has the part %q", selector, part)
		}
		matches, err := sharding.NewSelector(sharding.ShardRangeRequirement{
			Key: args[0], Start: strings.Trim(args[1], "'"), End: strings.Trim(args[2], "'"),
		}).Matches(obj)
		if err != nil {
			t.Fatal(err)
		}
		if matches {
			return true
		}
	}
	return false
}

func TestHashesAtTheEndsHaveABucket(t *testing.T) {
	r := &Ranges{Starts: []uint64{0, 0, 5, math.MaxUint64}, Weights: make([]int, 5)}
	for _, test := range []struct {
		bucket     int
		start, end string
	}{
		{0, "0x0000000000000000", "0x0000000000000000"},
		{2, "0x0000000000000000", "0x0000000000000005"},
		{4, "0xffffffffffffffff", "0x10000000000000000"},
	} {
		if start, end := r.limits(test.bucket); start != test.start || end != test.end {
			t.Errorf("bucket %d is from %s to %s", test.bucket, start, end)
		}
	}
}

func TestRangesThatCannotBeReadAreRefused(t *testing.T) {
	good := `{"starts":[5],"weights":[1,2]}`
	if _, err := Parse(good, 2); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"":                                   "it has no ranges of namespaces",
		"{":                                  "it has no ranges of namespaces",
		"null":                               "it has no ranges of namespaces",
		good + "x":                           "it has no ranges of namespaces",
		`{"starts":[-1],"weights":[1,2]}`:    "it has no ranges of namespaces",
		`{"starts":[5,6],"weights":[1,2,3]}`: "its ranges are for 3 buckets, not for 2",
		`{"starts":[5],"weights":[1]}`:       "its ranges are for 2 buckets, not for 2",
		`{"starts":[5],"weights":[1,-2]}`:    "a weight is less than 0",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Parse(`{"starts":[6,5],"weights":[1,2,3]}`, 3); err == nil || !strings.Contains(err.Error(), "not in order") {
		t.Errorf("not in order: %v", err)
	}
}

func FuzzParseRanges(f *testing.F) {
	f.Add(`{"starts":[5],"weights":[1,2]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text, 2)
		if err != nil {
			return
		}
		b := r.Bucket("default")
		if got := selects(t, r.Selector(sets.Set[int]{b: {}}), "default"); !got {
			t.Errorf("%s: the namespace has the bucket %d, whose selector does not select it", text, b)
		}
	})
}

// Replicas join one by one, and leave one by one. No division by namespace can give the replica with the most
// less than the heaviest namespace.
func TestReplicasHaveAboutAsManyObjects(t *testing.T) {
	const buckets = 64
	for _, name := range []string{"ns0 to ns99", "Zipf", "one of 20 %"} {
		weights := distributions[name]
		r := Cut(weights, buckets)
		total, heaviest := 0, slices.Max(slices.Collect(maps.Values(weights)))
		for _, weight := range weights {
			total += weight
		}
		holders := make([]string, buckets)
		for _, replicas := range []int{1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1} {
			var sessions []string
			for n := range replicas {
				sessions = append(sessions, "r"+strconv.Itoa(n))
			}
			holders = Assign(sessions, holders, r.Weights)
			if again := Assign(sessions, holders, r.Weights); !slices.Equal(again, holders) {
				t.Errorf("%s, %d replicas: the plan does not stay", name, replicas)
			}
			has := map[string]int{}
			for namespace, weight := range weights {
				has[holders[r.Bucket(namespace)]] += weight
			}
			most := slices.Max(slices.Collect(maps.Values(has)))
			if limit := 1.2 * max(float64(total)/float64(replicas), float64(heaviest)); float64(most) > limit {
				t.Errorf("%s, %d replicas: one has %d of %d objects, more than %.0f", name, replicas, most, total, limit)
			}
		}
	}
}
