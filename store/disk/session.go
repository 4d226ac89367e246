package disk

import (
	"encoding/json"
	"os"
	"strings"

	"go.etcd.io/bbolt"
)

// The buckets. The one about the file has the first name, so that a check reads it before all
// the rest.
const (
	aboutBucket      = "about"
	indexesBucket    = "indexes"
	objectsBucket    = "objects"
	tombstonesBucket = "tombstones"
)

var buckets = []string{aboutBucket, indexesBucket, objectsBucket, tombstonesBucket}

// The keys in aboutBucket.
const (
	bookmarkKey = "bookmark"
	labelKey    = "label"
	sessionKey  = "session" // the machine's boot ID, while some writes may not be synced
)

// beginSession writes the label, the buckets and the session mark, unless they are up to date.
func (s *Store) beginSession() error {
	var begun bool
	err := s.view(func(tx *bbolt.Tx) error {
		about := tx.Bucket([]byte(aboutBucket))
		begun = about != nil && about.Get([]byte(labelKey)) != nil &&
			about.Get([]byte(sessionKey)) == nil && s.opts.Durability == SurvivePowerLoss
		if about != nil {
			return s.findIndexes(tx)
		}
		return nil
	})
	if err != nil || begun {
		return err
	}
	text, err := json.Marshal(s.label())
	if err != nil {
		return err
	}
	// This is synced, together with all earlier writes that were not.
	err = s.update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		if err := put(tx.Bucket([]byte(aboutBucket)), []byte(labelKey), text); err != nil {
			return err
		}
		return s.putSession(tx, s.opts.Durability == SurviveProcess)
	})
	s.db.NoSync = s.opts.Durability == SurviveProcess
	return err
}

// endSession syncs everything, and then removes the session mark from the file. The caller
// must be the writer.
func (s *Store) endSession() error {
	if s.opts.Durability == SurvivePowerLoss {
		return nil
	}
	s.db.NoSync = false
	return s.update(func(tx *bbolt.Tx) error { return s.putSession(tx, false) })
}

func (s *Store) putSession(tx *bbolt.Tx, unsynced bool) error {
	about := tx.Bucket([]byte(aboutBucket))
	if !unsynced {
		return remove(about, []byte(sessionKey))
	}
	return put(about, []byte(sessionKey), []byte(bootID()))
}

// bootID returns an ID of the current run of the machine, "" if the system has none.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
