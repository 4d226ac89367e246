package disk

import (
	"encoding/json"
	"os"
	"strings"

	"go.etcd.io/bbolt"
)

// beginSession writes the label, the buckets and the session mark. If they are up to date,
// it writes nothing.
func (d *database) beginSession(l label, survives Durability) error {
	var begun bool
	err := d.view(func(tx *bbolt.Tx) error {
		about := tx.Bucket([]byte(aboutBucket))
		begun = about != nil && about.Get([]byte(labelKey)) != nil &&
			about.Get([]byte(sessionKey)) == nil && survives == SurvivePowerLoss
		return nil
	})
	if err != nil || begun {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	// This is synced, together with all earlier writes that were not synced.
	err = d.update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		if err := put(tx.Bucket([]byte(aboutBucket)), []byte(labelKey), text); err != nil {
			return err
		}
		return putSession(tx, survives == SurviveProcess)
	})
	d.db.NoSync = survives == SurviveProcess
	return err
}

// endSession syncs everything, and then removes the session mark from the file. The caller
// must be the writer.
func (d *database) endSession() error {
	if !d.db.NoSync {
		return nil
	}
	d.db.NoSync = false
	return d.update(func(tx *bbolt.Tx) error { return putSession(tx, false) })
}

func putSession(tx *bbolt.Tx, unsynced bool) error {
	about := tx.Bucket([]byte(aboutBucket))
	if !unsynced {
		return remove(about, []byte(sessionKey))
	}
	return put(about, []byte(sessionKey), []byte(bootID()))
}

// bootID returns an ID of the current run of the machine, or "" if the system has none.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
