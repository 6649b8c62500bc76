from millrace_train.start import main

main()
