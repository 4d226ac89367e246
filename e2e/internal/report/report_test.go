package report

import "testing"

func TestAFigureThatIsUnknownIsADash(t *testing.T) {
	for value, want := range map[float64]string{
		Median[float64](nil, nil): "–", 0: "0", 0.3333333: "0.333", 12.345: "12.3", 1234567: "1,234,567", 0.0000123: "0.0000",
	} {
		if got := Number(value); got != want {
			t.Errorf("%v: got %s, want %s", value, got, want)
		}
	}
}
