package weak

import "testing"

func TestFareFarFromItsBoundaries(t *testing.T) {
	if Fare(1, false) != 0 || Fare(30, true) != 0 || Fare(30, false) != 200 || Fare(80, false) != 100 {
		t.Error("wrong fare")
	}
}
