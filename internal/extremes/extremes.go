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

// patience is how long a trial may take, in real time. After that, the process ends, because
// nothing can stop a goroutine that loops or waits for a mutex.
const patience = 2 * time.Minute

// Table describes how to try each number that a user of a module can set.
type Table struct {
	// Trials are the trials by setting, such as "informer.Options.PageSize",
	// "informer.Backoff(base)" or "informer.RetryPolicy returns wait".
	Trials map[string]Trial
	// Untried has the reason why settings are not tried. A key stands for all settings that begin
	// with it.
	Untried map[string]string
}

// Trial tries one number with each of its extreme values. [Number] and [Field] make one.
type Trial struct {
	refused string
	make    func(setting string) (value, number reflect.Value) // a new value, and the number in it
	try     func(t *testing.T, value reflect.Value) error
}

// Number returns a trial of a number that is an argument or a result of a function. try must
// return the error with which the number is refused, or nil if it is not refused. In the second
// case, try must fail the test if something does not work. refused has the names of the extremes
// that must be refused, separated by spaces: "max", "0", "-1" and "min", and for floats also
// "inf", "-inf" and "nan".
func Number[N any](refused string, try func(t *testing.T, n N) error) Trial {
	return Trial{refused, func(string) (value, number reflect.Value) {
		n := reflect.New(reflect.TypeFor[N]()).Elem()
		return n, n
	}, func(t *testing.T, value reflect.Value) error { return try(t, value.Interface().(N)) }}
}

// Field returns a trial of a field of the struct S, or of a struct inside S. try is as for
// [Number], but gets the result of base with an extreme value in the field. If base is nil, it
// gets the zero S with that value.
func Field[S any](refused string, base func() S, try func(t *testing.T, s S) error) Trial {
	return Trial{refused, func(setting string) (value, number reflect.Value) {
		s := reflect.New(reflect.TypeFor[S]()).Elem()
		if base != nil {
			s.Set(reflect.ValueOf(base()))
		}
		field := s
		for _, name := range strings.Split(setting, ".")[2:] { // without the package and the type
			field = reflect.Indirect(field).FieldByName(name)
		}
		return s, field
	}, func(t *testing.T, value reflect.Value) error { return try(t, value.Interface().(S)) }}
}

// extremesOf returns the extreme values of a type of numbers, by name.
func extremesOf(t reflect.Type) map[string]reflect.Value {
	var all map[string]any
	switch shift := 64 - t.Bits(); {
	case reflect.Zero(t).CanInt():
		all = map[string]any{"max": int64(math.MaxInt64) >> shift, "0": 0, "-1": -1, "min": int64(math.MinInt64) >> shift}
	case reflect.Zero(t).CanUint():
		all = map[string]any{"max": uint64(math.MaxUint64) >> shift, "0": 0}
	default:
		most := math.MaxFloat64
		if shift > 0 {
			most = math.MaxFloat32
		}
		all = map[string]any{"max": most, "0": 0, "-1": -1, "min": -most, "inf": math.Inf(1), "-inf": math.Inf(-1), "nan": math.NaN()}
	}
	values := map[string]reflect.Value{}
	for name, v := range all {
		values[name] = reflect.ValueOf(v).Convert(t)
	}
	return values
}

// Run finds the numbers that a user of the packages can set, and runs the trial of each. It fails
// the test if table lacks a number, or has a number that does not exist. patterns are patterns for
// the command "go list", such as "./...". Run leaves out commands and internal packages.
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
	_, number := trial.make(setting)
	values, refused := extremesOf(number.Type()), strings.Fields(trial.refused)
	for _, name := range refused {
		if !values[name].IsValid() {
			t.Errorf("the table has %s as refused, which is not an extreme of this type", name)
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
			value, number := trial.make(setting)
			number.Set(values[name])
			err := trial.try(t, value)
			switch want := slices.Contains(refused, name); {
			case err != nil && !want:
				t.Errorf("it is refused: %v", err)
			case err == nil && want:
				t.Error("it is not refused")
			case err != nil && !strings.Contains(err.Error(), shortName(setting)):
				t.Errorf("the error does not name %s: %v", shortName(setting), err)
			}
		})
	}
}

// shortName returns the name of a setting that an error must contain: the name of an argument, or
// of a field with its struct, such as Options.Backoff.Cap.
func shortName(setting string) string {
	if _, argument, ok := strings.Cut(setting, "("); ok {
		name, _, _ := strings.Cut(argument, ")")
		return name
	}
	_, name, _ := strings.Cut(setting, ".")
	return name
}

// faults returns which settings the table lacks, and which of its rows are not used.
func (table Table) faults(found []string) (faults []string) {
	used := map[string]bool{}
	for _, setting := range found {
		_, known := table.Trials[setting]
		for prefix, reason := range table.Untried {
			if strings.HasPrefix(setting, prefix) && reason != "" {
				if used[prefix] = true; known {
					faults = append(faults, fmt.Sprintf("%s is tried, and has a reason why it is not", setting))
				}
				known = true
			}
		}
		if used[setting] = true; !known {
			faults = append(faults, fmt.Sprintf("%s is not in the table: a user can set this number, so try its extreme values", setting))
		}
	}
	for _, row := range slices.Concat(slices.Sorted(maps.Keys(table.Trials)), slices.Sorted(maps.Keys(table.Untried))) {
		if !used[row] {
			faults = append(faults, fmt.Sprintf("%s is in the table, but there is no such number", row))
		}
	}
	return faults
}
