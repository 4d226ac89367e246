package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
)

var (
	chaosFor  = flag.Duration("chaos", time.Minute, "how long to play faults, with -short at most 10 s; 0 to play none")
	soakFor   = flag.Duration("soak", 0, "how long watchers come and go; 0 to skip the test")
	seed      = flag.Int64("seed", 0, "seed of the order of the faults; 0 for a new one each time")
	onlyFault = flag.String("fault", "", "name of the only fault to play")
	known     = flag.Bool("known", false, "also play faults that are known to fail")
	table     = flag.String("table", "", "file to which the tables are added")
)

func TestMain(m *testing.M) {
	stage.NoticeSilence()
	lab.Roles{"apiserver": lab.RoleOf(serve)}.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}

// publish prints a table, and adds it to the file of -table.
func publish(t *testing.T, title, text string) {
	t.Helper()
	t.Logf("%s\n%s", title, text)
	if *table == "" {
		return
	}
	file, err := os.OpenFile(*table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "%s: %s\n\n%s\n", time.Now().UTC().Format(time.DateOnly), title, text)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Error(err)
	}
}
