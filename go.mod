module github.com/dlock-go/dlock

go 1.25.0

require golang.org/x/sys v0.36.0
