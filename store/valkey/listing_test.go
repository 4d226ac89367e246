package valkey

import "testing"

func TestPagesOfDifferentStatesAreNotOneList(t *testing.T) {
	for name, c := range map[string]struct {
		second head
		want   string
	}{
		"the same state":  {head{epoch: "e", log: "l", session: "s", version: 7}, ""},
		"a later state":   {head{epoch: "e", log: "l", session: "s", version: 8}, ""},
		"another epoch":   {head{epoch: "f", log: "l", session: "s", version: 8}, "the writer has listed again"},
		"another log":     {head{epoch: "e", log: "m", session: "s", version: 8}, "the writer has listed again"},
		"another writer":  {head{epoch: "e", log: "l", session: "t", version: 8}, "another process writes"},
		"an older server": {head{epoch: "e", log: "l", session: "s", version: 6}, "the server has gone back"},
	} {
		l := &listing{epoch: "e", log: "l", session: "s", version: 7}
		err := l.follows(c.second)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != changedError{c.want}.Error()) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && l.version != c.second.version {
			t.Errorf("%s: the list goes on from version %d", name, l.version)
		}
	}
}
