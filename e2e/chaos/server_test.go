package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// serverVariable turns the test binary into an API server that also writes to itself all the
// time. The server runs in its own process because it keeps what is written: a soak must
// measure only the informers.
const serverVariable = "CHAOS_SERVER"

const soakWrites = 100 * time.Millisecond // pause between two writes, over all kinds

// address is the message in which a server tells how to reach it.
type address struct {
	Host, Token string
	CA          []byte
}

// serveUntilClosed serves until the standard input ends.
func serveUntilClosed() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := apiserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	w := &world{ctx: ctx}
	if w.client, err = dynamic.NewForConfig(server.Config()); err != nil {
		return err
	}
	kinds, random := allKinds(), rand.New(rand.NewPCG(1, 5))
	for _, k := range kinds {
		if _, err := server.InstallDefinition(ctx, k.definition()); err != nil {
			return err
		}
	}
	for range 600 { // from here on the number of objects stays about the same
		if err := w.write(kinds[random.IntN(len(kinds))], random); err != nil {
			return err
		}
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for pass(ctx, soakWrites) {
			if err := w.write(kinds[random.IntN(len(kinds))], random); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	})
	defer cancel()
	config := server.Config()
	text, err := json.Marshal(address{config.Host, config.BearerToken, config.CAData})
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startServer starts such a server. It ends with the test.
func startServer(t *testing.T) *rest.Config {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), serverVariable+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	var at address
	text, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		t.Fatalf("the server says %q: %v", text, err)
	}
	return &rest.Config{Host: at.Host, BearerToken: at.Token, TLSClientConfig: rest.TLSClientConfig{CAData: at.CA}, QPS: -1}
}
