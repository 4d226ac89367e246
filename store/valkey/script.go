package valkey

import (
	"context"
	"embed"
	"time"

	"github.com/valkey-io/valkey-go"
)

//go:embed lua
var lua embed.FS

// The scripts. Each is atomic: the server does nothing else meanwhile.
var (
	takeScript   = script("take", false)
	applyScript  = script("apply", false)
	getScript    = script("get", true)
	aboutScript  = script("about", true)
	pageScript   = script("page", true)
	followScript = script("follow", true)
)

func script(name string, readOnly bool) *valkey.Lua {
	text := ""
	for _, part := range []string{"state", name} {
		b, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the program was built without it
		}
		text += string(b)
	}
	if readOnly {
		return valkey.NewLuaScriptReadOnly(text)
	}
	return valkey.NewLuaScript(text)
}

// patience limits each request that reads. The client repeats a read until its ctx ends if the server
// cannot be reached.
const patience = 10 * time.Second

// run runs a script. The error wraps ErrFenced or ErrLost if the script has said so.
func run(ctx context.Context, client valkey.Client, p place, s *valkey.Lua, args ...string) (valkey.ValkeyMessage, error) {
	reply, err := s.Exec(ctx, client, p.keys, args).ToMessage()
	return reply, explain(err)
}

func read(ctx context.Context, client valkey.Client, p place, s *valkey.Lua, args ...string) (valkey.ValkeyMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return run(ctx, client, p, s, args...)
}
