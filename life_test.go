package informer

import "testing"

func TestTheEndOfAListenerHasOnePhaseForEachOrder(t *testing.T) {
	turn := func(p phase) func(*lifecycle) { return func(c *lifecycle) { c.turn(p) } }
	for name, c := range map[string]struct {
		steps []func(*lifecycle)
		want  phase
		takes bool // the listener is not removed
	}{
		"new":                        {nil, phaseJoining, true},
		"joined":                     {[]func(*lifecycle){turn(phaseLive)}, phaseLive, true},
		"joins again":                {[]func(*lifecycle){turn(phaseLive), turn(phaseJoining)}, phaseJoining, true},
		"the log ends":               {[]func(*lifecycle){turn(phaseLive), (*lifecycle).endPop}, phaseLast, true},
		"the state is not read":      {[]func(*lifecycle){(*lifecycle).endPop}, phaseCut, true},
		"removed while joining":      {[]func(*lifecycle){(*lifecycle).remove}, phaseRemoved, false},
		"removed while live":         {[]func(*lifecycle){turn(phaseLive), (*lifecycle).remove}, phaseRemoved, false},
		"the state comes too late":   {[]func(*lifecycle){(*lifecycle).remove, turn(phaseLive)}, phaseRemoved, false},
		"pop ends after removal":     {[]func(*lifecycle){turn(phaseLive), (*lifecycle).remove, (*lifecycle).endPop}, phaseOver, false},
		"removed after the log":      {[]func(*lifecycle){turn(phaseLive), (*lifecycle).endPop, (*lifecycle).remove}, phaseOver, false},
		"removed without a state":    {[]func(*lifecycle){(*lifecycle).endPop, (*lifecycle).remove}, phaseOver, false},
		"no phase follows the last":  {[]func(*lifecycle){(*lifecycle).remove, (*lifecycle).endPop, turn(phaseJoining)}, phaseOver, false},
		"a page comes after removal": {[]func(*lifecycle){turn(phaseLive), (*lifecycle).remove, turn(phaseJoining)}, phaseRemoved, false},
	} {
		var l lifecycle
		for _, step := range c.steps {
			step(&l)
		}
		if got := l.phase(); got != c.want || l.removed() == c.takes {
			t.Errorf("%s: phase %d (removed: %v), want %d", name, got, l.removed(), c.want)
		}
	}
}
