package valkey_test

// roleFlag makes the test program another program.
const roleFlag = "-as-a-process"

func play(args []string) int { return 2 }
