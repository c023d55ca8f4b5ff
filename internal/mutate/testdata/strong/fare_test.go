package strong

import "testing"

func TestFareAtItsBoundaries(t *testing.T) {
	if Fare(5, false) != 0 || Fare(30, true) != 0 || Fare(6, false) != 200 || Fare(64, false) != 200 || Fare(65, false) != 100 {
		t.Error("wrong fare")
	}
}
