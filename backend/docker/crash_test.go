package docker_test

// createVariable makes this test binary a program that creates a sandbox.
const createVariable = "KEEPWELL_TEST_CREATE"

func createAndDie() int { return 2 }
