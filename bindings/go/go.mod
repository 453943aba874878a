module siltstone

go 1.23
