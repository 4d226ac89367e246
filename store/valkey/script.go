package valkey

import (
	"context"
	"crypto/sha1"
	"embed"
	"fmt"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

//go:embed lua
var lua embed.FS

// These are the scripts. Each is atomic: the server does nothing else while it runs.
var (
	takeScript   = script("take", false)
	applyScript  = script("apply", false)
	getScript    = script("get", true)
	aboutScript  = script("about", true)
	pageScript   = script("page", true)
	followScript = script("follow", true)
)

// luaScript is a script. Once the server has run it, the server knows it by its hash.
type luaScript struct {
	text, hash string
	readOnly   bool
}

func script(name string, readOnly bool) luaScript {
	text := ""
	for _, part := range []string{"state", name} {
		b, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the program was built without it
		}
		text += string(b)
	}
	return luaScript{text, fmt.Sprintf("%x", sha1.Sum([]byte(text))), readOnly}
}

// command returns a command that runs the script. how is EVALSHA, and what its hash, or how is EVAL, and what its
// text.
func (s luaScript) command(b valkey.Builder, how, what string, keys, args []string) valkey.Completed {
	if s.readOnly {
		return b.Arbitrary(how+"_RO", what, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).ReadOnly()
	}
	return b.Arbitrary(how, what, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
}

// patience limits each request that reads. Without it, the client would repeat a read until its ctx ends if the
// server cannot be reached.
const patience = 10 * time.Second

// do makes a request. It pins the command, because the client repeats a read after a broken connection and then
// uses the memory of the command for another one. The goroutine that has written the command to the broken
// connection may still read it.
func do(ctx context.Context, client valkey.Client, command valkey.Completed) valkey.ValkeyResult {
	return client.Do(ctx, command.Pin())
}

// run runs a script. If the script has returned such an error, the error wraps ErrFenced or ErrLost.
func run(ctx context.Context, client valkey.Client, p place, s luaScript, args ...string) (valkey.ValkeyMessage, error) {
	reply := do(ctx, client, s.command(client.B(), "EVALSHA", s.hash, p.keys, args))
	if refusal, refused := valkey.IsValkeyErr(reply.Error()); refused && refusal.IsNoScript() {
		reply = do(ctx, client, s.command(client.B(), "EVAL", s.text, p.keys, args))
	}
	message, err := reply.ToMessage()
	return message, explain(err)
}

func read(ctx context.Context, client valkey.Client, p place, s luaScript, args ...string) (valkey.ValkeyMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return run(ctx, client, p, s, args...)
}
