package extremes

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long a trial may take, in real time. A trial that hangs ends the process then,
// because nothing can stop a goroutine that loops or waits for a mutex.
const patience = 2 * time.Minute

// Table says how to try each number that a user of a module can set.
type Table struct {
	// Trials are the trials by setting, such as "informer.Options.PageSize",
	// "informer.Backoff(base)" or "informer.RetryPolicy returns wait".
	Trials map[string]Trial
	// Untried has the reason for settings that are not tried. A key stands for all settings that
	// begin with it.
	Untried map[string]string
}

// Trial tries one number with each of its extreme values. [Number] and [Field] make one.
type Trial struct {
	refused string
	values  func(setting string) map[string]reflect.Value // by the name of the extreme
	try     func(t *testing.T, value reflect.Value) error
}

// Number returns a trial of a number that a function gets as an argument or returns. try returns
// the error with which the number is refused. It returns nil if the number is not refused, and
// fails the test if something does not work then. refused has the names of the extremes that
// must be refused: "max", "0", "-1" and "min", and for floats also "inf", "-inf" and "nan".
func Number[N any](refused string, try func(t *testing.T, n N) error) Trial {
	return Trial{refused, func(string) map[string]reflect.Value {
		values := map[string]reflect.Value{}
		for name, set := range extremesOf(reflect.TypeFor[N]()) {
			n := reflect.New(reflect.TypeFor[N]()).Elem()
			set(n)
			values[name] = n
		}
		return values
	}, func(t *testing.T, value reflect.Value) error { return try(t, value.Interface().(N)) }}
}

// Field returns a trial of a field of the struct S, or of a struct inside it. try is like that of
// [Number], but gets the result of base with an extreme value in the field. A nil base stands for
// the zero S.
func Field[S any](refused string, base func() S, try func(t *testing.T, s S) error) Trial {
	return Trial{refused, func(setting string) map[string]reflect.Value {
		values := map[string]reflect.Value{}
		path := strings.Split(setting, ".")[2:] // without the package and the type
		of := func() (s, field reflect.Value) {
			s = reflect.New(reflect.TypeFor[S]()).Elem()
			if base != nil {
				s.Set(reflect.ValueOf(base()))
			}
			field = s
			for _, name := range path {
				if field.Kind() == reflect.Pointer && field.IsNil() {
					field.Set(reflect.New(field.Type().Elem()))
				}
				field = reflect.Indirect(field).FieldByName(name)
			}
			return s, field
		}
		_, field := of()
		for name, set := range extremesOf(field.Type()) {
			s, field := of()
			set(field)
			values[name] = s
		}
		return values
	}, func(t *testing.T, value reflect.Value) error { return try(t, value.Interface().(S)) }}
}

// extremesOf returns functions that set a number of type t to an extreme value.
func extremesOf(t reflect.Type) map[string]func(reflect.Value) {
	bits := t.Bits()
	switch {
	case reflect.Zero(t).CanInt():
		all := map[string]func(reflect.Value){}
		for name, n := range map[string]int64{"max": math.MaxInt64 >> (64 - bits), "0": 0, "-1": -1, "min": math.MinInt64 >> (64 - bits)} {
			all[name] = func(v reflect.Value) { v.SetInt(n) }
		}
		return all
	case reflect.Zero(t).CanUint():
		return map[string]func(reflect.Value){
			"max": func(v reflect.Value) { v.SetUint(math.MaxUint64 >> (64 - bits)) },
			"0":   func(v reflect.Value) { v.SetUint(0) },
		}
	}
	all, most := map[string]func(reflect.Value){}, math.MaxFloat64
	if bits == 32 {
		most = math.MaxFloat32
	}
	for name, x := range map[string]float64{"max": most, "0": 0, "-1": -1, "min": -most, "inf": math.Inf(1), "-inf": math.Inf(-1), "nan": math.NaN()} {
		all[name] = func(v reflect.Value) { v.SetFloat(x) }
	}
	return all
}

// Run finds the numbers that a user of the packages can set, and makes the trial of each. It fails
// the test if table has no trial of a number, or has one of a number that does not exist. patterns
// are those of the command "go list", such as "./...". Commands and internal packages are left out.
func Run(t *testing.T, table Table, patterns ...string) {
	t.Helper()
	found, err := settings(patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range table.faults(found) {
		t.Error(fault)
	}
	for _, setting := range found {
		if trial, ok := table.Trials[setting]; ok {
			t.Run(setting, func(t *testing.T) { trial.run(t, setting) })
		}
	}
}

func (trial Trial) run(t *testing.T, setting string) {
	refused := strings.Fields(trial.refused)
	values := trial.values(setting)
	for _, name := range refused {
		if _, ok := values[name]; !ok {
			t.Errorf("the table says that %s is refused, which is no extreme of this type", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.Run(name, func(t *testing.T) {
			hung := time.AfterFunc(patience, func() {
				panic(fmt.Sprintf("%s hangs: it has not ended after %v", t.Name(), patience))
			})
			defer hung.Stop()
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("panic: %v\n%s", v, debug.Stack())
				}
			}()
			err := trial.try(t, values[name])
			switch want := slices.Contains(refused, name); {
			case err != nil && !want:
				t.Errorf("it is refused: %v", err)
			case err == nil && want:
				t.Error("it is not refused")
			case err != nil && !strings.Contains(err.Error(), shortName(setting)):
				t.Errorf("the error does not say %s: %v", shortName(setting), err)
			}
		})
	}
}

// shortName returns the words that an error must have about a setting: the name of an argument,
// or of a field with its struct, such as Options.Backoff.Cap.
func shortName(setting string) string {
	if _, argument, ok := strings.Cut(setting, "("); ok {
		name, _, _ := strings.Cut(argument, ")")
		return name
	}
	_, name, _ := strings.Cut(setting, ".")
	return name
}

// faults says which settings the table lacks, and which of its rows are of no use.
func (table Table) faults(found []string) (faults []string) {
	used := map[string]bool{}
	for _, setting := range found {
		untried := false
		for prefix, reason := range table.Untried {
			if strings.HasPrefix(setting, prefix) && reason != "" {
				untried, used[prefix] = true, true
			}
		}
		_, tried := table.Trials[setting]
		switch used[setting] = true; {
		case !tried && !untried:
			faults = append(faults, fmt.Sprintf("%s is not in the table: a user can set this number, so try its extreme values", setting))
		case tried && untried:
			faults = append(faults, fmt.Sprintf("%s is tried, and has a reason why it is not", setting))
		}
	}
	for _, row := range slices.Sorted(maps.Keys(table.Trials)) {
		if !used[row] {
			faults = append(faults, fmt.Sprintf("%s is in the table, but there is no such number", row))
		}
	}
	for _, row := range slices.Sorted(maps.Keys(table.Untried)) {
		if !used[row] {
			faults = append(faults, fmt.Sprintf("%s has a reason why it is not tried, but there is no such number", row))
		}
	}
	return faults
}
