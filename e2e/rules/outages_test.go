package rules_test

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// begin is the time at which the faults of the outages begin, at the 61st scrape.
const begin = 30 * time.Minute

// want holds, for each alert that must fire, the time from the beginning of the outage until
// it fires. No other alert may fire.
type want map[string]time.Duration

var outages = []struct {
	name   string
	almost string // the alert that a slightly worse outage would fire
	series map[string]string
	want   want
}{
	{name: "nothing is wrong"},

	{
		name:   "the first list does not come",
		series: map[string]string{`informer_synced`: "_x60 0x180"},
		want:   want{"InformerNotSynced": 10 * time.Minute},
	},
	{
		name:   "the first list takes just less than ten minutes",
		almost: "InformerNotSynced",
		series: map[string]string{`informer_synced`: "_x60 0x19 1x160"},
	},

	{
		name: "the API server is gone",
		series: map[string]string{
			`informer_source_failures`:                "0x59 1+1x180",
			`informer_watching`:                       "1x59 0x180",
			`informer_last_contact_timestamp_seconds`: "0+30x59 1770x180",
		},
		want: want{"InformerSourceFailing": 10 * time.Minute, "InformerSourceStale": 15 * time.Minute},
	},
	{
		name: "lists fail in the middle",
		series: map[string]string{`informer_source_failures`: "0x59 1+1x180", `informer_queued_changes`: "5x59 0x180",
			`informer_last_progress_timestamp_seconds`: "0+30x59 1770x180"},
		want: want{"InformerSourceFailing": 10 * time.Minute, "InformerSourceStale": 15 * time.Minute},
	},
	{
		name:   "the API server is back after just less than ten minutes",
		almost: "InformerSourceFailing",
		series: map[string]string{
			`informer_source_failures`:                "0x59 1+1x19 0x160",
			`informer_last_contact_timestamp_seconds`: "0+30x59 1770x19 2400+30x160",
		},
	},
	{
		name:   "the connection leads nowhere",
		series: map[string]string{`informer_last_contact_timestamp_seconds`: "0+30x59 1770x180"},
		want:   want{"InformerSourceStale": 15 * time.Minute},
	},
	{
		name:   "the connection leads nowhere for just less than a quarter of an hour",
		almost: "InformerSourceStale",
		series: map[string]string{`informer_last_contact_timestamp_seconds`: "0+30x59 1770x29 2700+30x150"},
	},
	{
		name:   "the server sends no bookmarks, and nothing changes",
		almost: "InformerSourceStale",
		series: map[string]string{
			`informer_last_contact_timestamp_seconds`: strings.Join([]string{
				"0x19", "600x19", "1200x19", "1800x19", "2400x19", "3000x19",
				"3600x19", "4200x19", "4800x19", "5400x19", "6000x19", "6600x19 7200",
			}, " "),
			`informer_last_progress_timestamp_seconds`: "0x240",
			`informer_queued_changes`:                  "0x240",
		},
	},
	{
		name: "it is stopped, and the program lives on",
		series: map[string]string{
			`informer_stopped`:                         "0x59 1x180",
			`informer_watching`:                        "1x59 0x180",
			`informer_last_contact_timestamp_seconds`:  "0+30x59 1770x180",
			`informer_last_progress_timestamp_seconds`: "0+30x59 1770x180",
		},
		want: want{"InformerStopped": 5 * time.Minute},
	},
	{
		name:   "it is taken out of its group a little after it was stopped",
		almost: "InformerStopped",
		series: map[string]string{`informer_stopped`: "0x59 1x9 0x170"},
	},
	{
		name:   "a watch expires every five minutes",
		series: map[string]string{`informer_watches_total{outcome="expired"}`: "0x59 1x9 2x9 3x9 4x9 5x9 6x9 7x9 8x9 9x9 10x9 11x9 12x9 13x9 14x9 15x9 16x9 17x9 18x9 18"},
		want:   want{"InformerRelistStorm": 25 * time.Minute},
	},
	{
		name:   "four watches expire",
		almost: "InformerRelistStorm",
		series: map[string]string{`informer_watches_total{outcome="expired"}`: "0x59 1x2 2x2 3x2 4x180"},
	},

	{
		name: "the disk is full",
		series: map[string]string{
			`informer_store_failing`:                   "0x59 1x180",
			`informer_queued_changes`:                  "5x59 6+4x180",
			`informer_last_progress_timestamp_seconds`: "0+30x59 1770x180",
		},
		want: want{"InformerStoreFailing": 5 * time.Minute, "InformerNotProgressing": 10 * time.Minute},
	},
	{
		name:   "the disk has room again after just less than five minutes",
		almost: "InformerStoreFailing",
		series: map[string]string{
			`informer_store_failing`:                   "0x59 1x9 0x170",
			`informer_queued_changes`:                  "5x59 6+4x9 5x170",
			`informer_last_progress_timestamp_seconds`: "0+30x59 1770x9 2100+30x170",
		},
	},
	{
		name: "an operation on the store hangs",
		series: map[string]string{
			`informer_store_busy_seconds`: "0.1x59 0+30x180",
			`informer_store_failing`:      "0x60 1x180",
		},
		// The liveness probe fails after 5 minutes.
		want: want{"InformerStoreStuck": 3*time.Minute + 30*time.Second, "InformerStoreFailing": 5*time.Minute + 30*time.Second},
	},
	{
		name:   "operations on the store take two minutes each",
		almost: "InformerStoreStuck",
		series: map[string]string{`informer_store_busy_seconds`: "0.1x59 " + strings.Repeat("0+30x4 ", 37)},
	},
	{
		name:   "an operation on the store takes three minutes",
		almost: "InformerStoreStuck",
		series: map[string]string{`informer_store_busy_seconds`: "0.1x59 0+30x6 0.1x173"},
	},
	{
		name:   "a Transform blocks",
		series: map[string]string{`informer_last_progress_timestamp_seconds`: "0+30x59 1770x180"},
		want:   want{"InformerNotProgressing": 10 * time.Minute},
	},
	{
		name:   "a Transform blocks for just less than ten minutes",
		almost: "InformerNotProgressing",
		series: map[string]string{`informer_last_progress_timestamp_seconds`: "0+30x59 1770x19 2400+30x160"},
	},
	{
		name:   "the store refuses one change",
		series: map[string]string{`informer_refused_changes_total`: "0x59 1x180"},
		want:   want{"InformerChangesRefused": time.Minute},
	},
	{
		name:   "a program that had refused changes is restarted",
		almost: "InformerChangesRefused",
		series: map[string]string{`informer_refused_changes_total`: "3x59 0x180"},
	},
	{
		name:   "one tombstone stays",
		series: map[string]string{`informer_tombstones`: "0x59 1x180"},
		want:   want{"InformerTombstonesNotForgotten": 59*time.Minute + 30*time.Second},
	},
	{
		name:   "objects are deleted all the time",
		almost: "InformerTombstonesNotForgotten",
		series: map[string]string{`informer_tombstones`: strings.Repeat("3 9 4 1 ", 61)},
	},
	{
		name:   "many tombstones go one by one",
		almost: "InformerTombstonesNotForgotten",
		series: map[string]string{`informer_tombstones`: "0x59 1000-5x180"},
	},

	{
		name: "a watcher blocks",
		series: map[string]string{
			`informer_watcher_oldest_waiting_seconds`: "20x59 0+30x180",
			`informer_watcher_delivered_total`:        "0+100x59 5900x180",
		},
		want: want{"InformerWatcherBlocked": 15*time.Minute + 30*time.Second},
	},
	{
		name:   "one event fails each time, and others are delivered",
		series: map[string]string{`informer_watcher_oldest_waiting_seconds`: "20x59 0+30x180"},
		want:   want{"InformerWatcherBlocked": 15*time.Minute + 30*time.Second},
	},
	{
		name:   "a watcher blocks for just less than a quarter of an hour",
		almost: "InformerWatcherBlocked",
		series: map[string]string{`informer_watcher_oldest_waiting_seconds`: "20x59 0+30x30 20x149"},
	},
	{
		name:   "a watcher falls back slowly",
		almost: "InformerWatcherBlocked",
		series: map[string]string{`informer_watcher_oldest_waiting_seconds`: "20x59 20+9x180"},
	},
	{
		name:   "a watcher gets very many objects",
		almost: "InformerWatcherBlocked",
		series: map[string]string{
			`informer_watcher_synced`:                 "_x60 0x180",
			`informer_watcher_oldest_waiting_seconds`: "_x60 0+30x180",
			`informer_watcher_delivered_total`:        "_x60 0+100x180",
		},
	},
	{
		name: "a watcher blocks at its first object",
		series: map[string]string{
			`informer_watcher_synced`:                 "_x60 0x180",
			`informer_watcher_oldest_waiting_seconds`: "_x60 0+30x180",
			`informer_watcher_delivered_total`:        "_x60 0x180",
		},
		want: want{"InformerWatcherBlocked": 15*time.Minute + 30*time.Second},
	},
	{
		name:   "a watcher lags for good",
		series: map[string]string{`informer_watcher_lagging`: "0x59 1x180"},
		want:   want{"InformerWatcherLagging": 15 * time.Minute},
	},
	{
		name:   "a watcher lags for just less than a quarter of an hour",
		almost: "InformerWatcherLagging",
		series: map[string]string{`informer_watcher_lagging`: "0x59 1x29 0x150"},
	},
	{
		name:   "a watcher gives up one event",
		series: map[string]string{`informer_watcher_failed_total`: "0x59 1x180"},
		want:   want{"InformerWatcherFailing": time.Minute},
	},
	{
		name:   "a watcher retries very many events",
		almost: "InformerWatcherFailing",
		series: map[string]string{`informer_watcher_retried_total`: "0+1000x240"},
	},

	{
		name: "a key cannot be reconciled",
		series: map[string]string{
			`informer_reconcile_longest_failing_seconds`:  "40x59 0+30x180",
			`informer_reconcile_total{outcome="error"}`:   "0+1x59 60+2x180",
			`informer_reconcile_total{outcome="success"}`: "0+15x240",
		},
		want: want{"InformerReconcileFailing": 61*time.Minute + 30*time.Second},
	},
	{
		name:   "a key cannot be reconciled for just less than an hour",
		almost: "InformerReconcileFailing",
		series: map[string]string{`informer_reconcile_longest_failing_seconds`: "40x59 0+30x120 40x59"},
	},
	{
		name: "the only worker hangs",
		series: map[string]string{
			`informer_reconcile_workers`:                        "1x240",
			`informer_reconcile_longest_call_seconds`:           "2x59 0+30x180",
			`informer_reconcile_queued`:                         "50x59 51+1x180",
			`informer_reconcile_oldest_queued_seconds`:          "20x59 20+30x180",
			`informer_reconcile_last_success_timestamp_seconds`: "0+30x59 1770x180",
			`informer_reconcile_total{outcome="success"}`:       "0+15x59 885x180",
		},
		want: want{"InformerReconcileHung": 10*time.Minute + 30*time.Second},
	},
	{
		name:   "a call takes nine minutes",
		almost: "InformerReconcileHung",
		series: map[string]string{`informer_reconcile_longest_call_seconds`: "2x59 0+30x18 2x161"},
	},
	{
		name:   "each call takes just less than ten minutes",
		almost: "InformerReconcileHung",
		series: map[string]string{`informer_reconcile_longest_call_seconds`: "2x59 " + strings.Repeat("0+30x19 ", 9)},
	},
	{
		name: "keys arrive faster than they are reconciled",
		series: map[string]string{
			`informer_reconcile_queued`:                "50x59 50+10x180",
			`informer_reconcile_oldest_queued_seconds`: "20x59 20+15x180",
		},
		want: want{"InformerReconcileBehind": 34*time.Minute + 30*time.Second},
	},
	{
		name: "all keys are in the queue all the time",
		series: map[string]string{
			`informer_reconcile_queued`:                "50x59 " + strings.Repeat("2000 1990 2005 1995 ", 46),
			`informer_reconcile_oldest_queued_seconds`: "20x59 20+30x40 1220x139",
		},
		want: want{"InformerReconcileBehind": 25 * time.Minute},
	},
	{
		name:   "a hundred thousand keys come at once, and a second time",
		almost: "InformerReconcileBehind",
		series: map[string]string{
			`informer_reconcile_queued`:                "50x59 100000-1500x40 99000-1500x65 50x73",
			`informer_reconcile_oldest_queued_seconds`: "20x59 0+30x106 20x73",
		},
	},
	{
		name:   "many keys wait on standby",
		almost: "InformerReconcileBehind",
		series: map[string]string{
			`informer_reconcile_standby`:               "1x240",
			`informer_reconcile_queued`:                "0+100x240",
			`informer_reconcile_oldest_queued_seconds`: "0x240",
		},
	},

	{
		name: "a replica may not write Leases",
		series: map[string]string{
			`informer_shards_joined`:   "0x240",
			`informer_shards_session`:  "_x60 0x180",
			`informer_shards_replicas`: "2x240",
			`informer_shards_owned`:    "0x240",
		},
		want: want{"InformerShardsNotJoined": 10 * time.Minute},
	},
	{
		name:   "a replica joins after just less than ten minutes",
		almost: "InformerShardsNotJoined",
		series: map[string]string{`informer_shards_session`: "_x60 0x19 1x160"},
	},
	{
		name:   "a set is stopped, and the program lives on",
		almost: "InformerShardsNotJoined",
		series: map[string]string{
			`informer_shards_session`: "1x59 0x180",
			`informer_shards_stopped`: "0x59 1x180",
			`informer_shards_owned`:   "21x59 0x180",
		},
	},
	{
		name: "a replica is cut off",
		series: map[string]string{
			`informer_shards_session`:             "1x59 0x180",
			`informer_shards_source_failures`:     "0x59 1+1x180",
			`informer_shards_replicas`:            "3x60 0x179",
			`informer_shards_unowned`:             "0x60 64x179",
			`informer_shards_unowned_seconds`:     "0x60 0+30x179",
			`informer_shards_lost_sessions_total`: "0x59 1x180",
		},
		want: want{"InformerShardsNotJoined": 10 * time.Minute, "InformerShardsLeasesFailing": 10 * time.Minute},
	},
	{
		name:   "a replica is cut off for just less than ten minutes",
		almost: "InformerShardsLeasesFailing",
		series: map[string]string{
			`informer_shards_source_failures`: "0x59 1+1x19 0x160",
			`informer_shards_session`:         "1x59 0x19 1x160",
		},
	},
	{
		name: "a bucket is not taken",
		series: map[string]string{
			`informer_shards_unowned`:         "0x59 1x180",
			`informer_shards_unowned_seconds`: "0x59 0+30x180",
		},
		want: want{"InformerShardsUnowned": 2*time.Minute + 30*time.Second},
	},
	{
		name:   "replicas die, and others take their buckets within two minutes",
		almost: "InformerShardsUnowned",
		series: map[string]string{
			`informer_shards_unowned`:         "0x59 32x4 0x175",
			`informer_shards_unowned_seconds`: "0x59 0+30x4 " + strings.Repeat("0x30 0+30x4 ", 5),
		},
	},
	{
		name: "the caches of the only replica are behind",
		series: map[string]string{
			`informer_shards_catching_up`:         "0x59 21x180",
			`informer_shards_catching_up_seconds`: "0x59 0+30x180",
		},
		want: want{"InformerShardsBehind": 4*time.Minute + 30*time.Second},
	},
	{
		name:   "a replica that is behind gives its buckets to others",
		almost: "InformerShardsBehind",
		series: map[string]string{
			`informer_shards_catching_up_seconds`: "0x59 0+30x180",
			`informer_shards_owned`:               "21x66 0x173",
		},
	},
	{
		name: "a rolling update that adds a controller stops half-way",
		series: map[string]string{
			`informer_shards_unserved`:         "0x59 32x180",
			`informer_shards_unserved_seconds`: "0x59 0+30x180",
		},
		want: want{"InformerShardsUnserved": 11*time.Minute + 30*time.Second},
	},
	{
		name:   "a rolling update that adds a controller takes just less than ten minutes",
		almost: "InformerShardsUnserved",
		series: map[string]string{
			`informer_shards_unserved`:         "0x59 32x20 0x159",
			`informer_shards_unserved_seconds`: "0x59 0+30x20 0x159",
		},
	},
	{
		name: "a call does not heed its ctx while its bucket drains",
		series: map[string]string{
			`informer_shards_draining`:         "0x59 1x180",
			`informer_shards_draining_seconds`: "0x59 0+30x180",
		},
		want: want{"InformerShardsDraining": 10*time.Minute + 30*time.Second},
	},
	{
		name:   "a bucket drains for nine minutes, and another one after it",
		almost: "InformerShardsDraining",
		series: map[string]string{`informer_shards_draining_seconds`: "0x59 0+30x18 0x10 0+30x18 0x140"},
	},
	{
		name:   "a replica loses its session every ten minutes",
		series: map[string]string{`informer_shards_lost_sessions_total`: "0x59 1x19 2x19 3x19 4x19 5x19 6x19 7x19 8x19 9x20"},
		want:   want{"InformerShardsSessionsLost": 21 * time.Minute},
	},
	{
		name:   "a replica loses two sessions",
		almost: "InformerShardsSessionsLost",
		series: map[string]string{`informer_shards_lost_sessions_total`: "0x59 1x19 2x160"},
	},
	{
		name: "calls of a lost session go on",
		series: map[string]string{
			`informer_shards_lost_sessions_total`: "0x59 1x180",
			`informer_shards_lost_calls`:          "0x59 2x180",
		},
		want: want{"InformerShardsLostCalls": time.Minute},
	},
	{
		name:   "calls of a lost session return after a moment",
		almost: "InformerShardsLostCalls",
		series: map[string]string{`informer_shards_lost_calls`: "0x59 2x1 0x178"},
	},
	{
		name:   "a member of another kind is not ready",
		series: map[string]string{`informer_member_ready`: "1x59 0x180"},
		want:   want{"InformerMemberNotReady": 10 * time.Minute},
	},
	{
		name:   "a kind is parked for long",
		series: map[string]string{`informer_kinds_parked`: "0x59 1x180", `informer_kinds_parked_seconds`: "0x59 0+30x180"},
		want:   want{"InformerKindParked": 35*time.Minute + 30*time.Second},
	},
	{
		name:   "a kind is parked for a little more than half an hour",
		almost: "InformerKindParked",
		series: map[string]string{`informer_kinds_parked`: "0x59 1x65 0x115", `informer_kinds_parked_seconds`: "0x59 0+30x65 0x115"},
	},
	{
		name:   "it is ready after just less than ten minutes",
		almost: "InformerMemberNotReady",
		series: map[string]string{`informer_member_ready`: "1x59 0x19 1x160"},
	},
}

func TestOutagesFireTheirAlertsAndNoOthers(t *testing.T) {
	list, alerts, engine := readList(t), readAlerts(t), newEngine(t)
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			seen := record(t, list, program(outage.series))
			rest := maps.Clone(outage.want)
			for _, alert := range alerts {
				for _, f := range evaluate(t, engine, alert, seen) {
					after, wanted := rest[alert.Alert]
					delete(rest, alert.Alert)
					if !wanted || f.at-begin != after {
						t.Errorf("%s of %v fires after %v, want %v", alert.Alert, f.labels, f.at-begin, after)
					}
					checkTexts(t, alert.Annotations, f)
				}
			}
			for name, after := range rest {
				t.Errorf("%s does not fire, want after %v", name, after)
			}
		})
	}
}

func TestEveryAlertHasAnOutageThatFiresItAndOneThatAlmostDoes(t *testing.T) {
	fires, almost := map[string]bool{}, map[string]bool{}
	for _, outage := range outages {
		almost[outage.almost] = true
		for name := range outage.want {
			fires[name] = true
		}
	}
	for _, alert := range readAlerts(t) {
		if !fires[alert.Alert] || !almost[alert.Alert] {
			t.Errorf("%s: an outage fires it: %t; another almost fires it: %t", alert.Alert, fires[alert.Alert], almost[alert.Alert])
		}
	}
}
