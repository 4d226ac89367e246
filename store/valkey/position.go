package valkey

import (
	"fmt"
	"strconv"
	"strings"
)

type position struct {
	written  int64  // number of the write; each write has the next one
	call     string // the write itself
	bookmark string
	version  uint64 // of the source at which it had these objects; 0 if it never had
	highest  uint64 // the highest version since the epoch began
	epoch    string // changes when the versions begin again, so that a reader may go back
	log      string // changes when the log begins again; "" if there is none
	first    uint64 // the version with which the log began
	last     id     // no entry of the log comes after it, and every later entry will
}

// fields returns the names of the fields that a write sets, each followed by its value.
func (p position) fields() []string {
	return []string{
		"bookmark", p.bookmark, "version", versionText(p.version), "highest", versionText(p.highest),
		"epoch", p.epoch, "log", p.log, "first", versionText(p.first), "last", p.last.String(),
	}
}

// parsePosition returns the position in the answer of the script take.
func parsePosition(fields []string) (p position, err error) {
	p = position{call: fields[1], bookmark: fields[2], epoch: fields[5], log: fields[6]}
	if p.written, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return position{}, fmt.Errorf("the number of the last write: %w", err)
	}
	p.version, p.highest, p.first = parseVersion(fields[3]), parseVersion(fields[4]), parseVersion(fields[8])
	p.last, err = parseID(fields[7])
	return p, err
}

// parseVersion returns a version of the source as a number, or 0 if text is not such a version. The
// bookmark of an informer over several namespaces is not a version.
func parseVersion(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 63) // Kubernetes' versions have 63 bits
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0
	}
	return n
}

func versionText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// id is the id of an entry of the log. An added or changed object has its own version and the number 0.
// The store does not know the version of a delete. So a delete has the version that the store had before
// it and the next number. The log is in order, and a reader that continues from a version gets every
// delete after it, but may get a delete twice.
type id struct{ version, n uint64 }

func (i id) String() string {
	return strconv.FormatUint(i.version, 10) + "-" + strconv.FormatUint(i.n, 10)
}

func (i id) after(j id) bool {
	return i.version > j.version || i.version == j.version && i.n > j.n
}

func parseID(text string) (i id, err error) {
	if text == "" {
		return id{}, nil
	}
	version, n, found := strings.Cut(text, "-")
	if !found {
		return id{}, fmt.Errorf("%q is not the id of an entry", text)
	}
	if i.version, err = strconv.ParseUint(version, 10, 64); err == nil {
		i.n, err = strconv.ParseUint(n, 10, 64)
	}
	if err != nil {
		return id{}, fmt.Errorf("%q is not the id of an entry: %w", text, err)
	}
	return i, nil
}
