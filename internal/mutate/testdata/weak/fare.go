// Package weak is a small thing to mutate.
package weak

// Fare is what a ticket costs, in cents.
func Fare(age int, pass bool) (cents int) {
	if age < 6 || pass {
		return
	}
	cents = 200
	switch {
	case age > 64:
		cents = 100
	}
	return
}
